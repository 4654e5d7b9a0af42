//! What leaves a stream next: the most urgent frame that may overtake those before it.
//!
//! A frame of an operation has that operation's *urgency*; a frame without one is *fixed*, and so is one that has begun to
//! leave. Frames of more urgency overtake those of less, up to the first fixed frame; equal ones keep their order. So where
//! all urgencies are equal, as they are if nobody names one, the queue is first in, first out. The order in which an
//! urgent frame leaves is this rank's own affair: all ranks number and begin operations alike whatever their urgencies.

use std::collections::VecDeque;

/// A frame that waits, and how urgent it is.
#[derive(Debug)]
pub struct Waiting<T> {
    /// The frame.
    pub frame: T,
    urgency: Option<i32>,
}

impl<T> Waiting<T> {
    /// It has begun to leave: nothing overtakes it any more.
    pub fn fix(&mut self) {
        self.urgency = None;
    }

    fn overtakes(&self, other: &Waiting<T>) -> bool {
        self.urgency.zip(other.urgency).is_some_and(|(mine, others)| mine > others)
    }
}

/// The frames that wait to leave over one stream, in the order in which they will.
#[derive(Debug)]
pub struct UrgencyQueue<T> {
    frames: VecDeque<Waiting<T>>,
}

impl<T> Default for UrgencyQueue<T> {
    fn default() -> UrgencyQueue<T> {
        UrgencyQueue { frames: VecDeque::new() }
    }
}

impl<T> UrgencyQueue<T> {
    /// A frame comes; `None`: it overtakes nothing, and nothing overtakes it. Costs as many comparisons as it overtakes.
    pub fn push(&mut self, frame: T, urgency: Option<i32>) {
        let frame = Waiting { frame, urgency };
        let behind = self.frames.iter().rev().take_while(|before| frame.overtakes(before)).count();
        self.frames.insert(self.frames.len() - behind, frame);
    }

    /// Takes out those that leave next, `most` of them.
    pub fn take(&mut self, most: usize) -> VecDeque<Waiting<T>> {
        self.frames.drain(..most.min(self.frames.len())).collect()
    }

    /// What was taken and has not left comes back, in its order. More urgent frames may have come meanwhile.
    pub fn put_back(&mut self, taken: VecDeque<Waiting<T>>) {
        for frame in taken.into_iter().rev() {
            let before = self.frames.iter().take_while(|first| first.overtakes(&frame)).count();
            self.frames.insert(before, frame);
        }
    }

    /// Those frames become at least so urgent. They keep their order among themselves.
    pub fn lift(&mut self, is_meant: impl Fn(&T) -> bool, urgency: i32) {
        for frame in std::mem::take(&mut self.frames) {
            let lifted = frame.urgency.map(|now| if is_meant(&frame.frame) { now.max(urgency) } else { now });
            self.push(frame.frame, lifted);
        }
    }

    /// The frame that leaves next.
    pub fn front_mut(&mut self) -> Option<&mut Waiting<T>> {
        self.frames.front_mut()
    }

    /// Takes out the frame that leaves next.
    pub fn pop(&mut self) -> Option<T> {
        self.frames.pop_front().map(|waiting| waiting.frame)
    }

    /// Keeps the frames that meet a condition, which may change them.
    pub fn retain_mut(&mut self, mut keeps: impl FnMut(&mut T) -> bool) {
        self.frames.retain_mut(|waiting| keeps(&mut waiting.frame));
    }

    /// The frames, in the order in which they will leave.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.frames.iter().map(|waiting| &waiting.frame)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::option::of;
    use proptest::prelude::*;

    use super::*;

    /// What happens to a queue.
    #[derive(Clone, Debug)]
    enum Event {
        Push(Option<i32>),
        /// So many are taken, and of those so many leave; the next has begun or not; meanwhile others came.
        Write(usize, usize, bool, Vec<Option<i32>>),
        /// Those whose number is divisible by the first become at least so urgent.
        Lift(usize, i32),
    }

    fn urgencies() -> impl Strategy<Value = Option<i32>> {
        of(-1..3i32)
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let write = (0..6usize, 0..6usize, any::<bool>(), vec(urgencies(), 0..4));
        let event = prop_oneof![
            4 => urgencies().prop_map(Event::Push),
            3 => write.prop_map(|(most, leave, begins, come)| Event::Write(most, leave, begins, come)),
            1 => (1..4usize, -1..3i32).prop_map(|(by, urgency)| Event::Lift(by, urgency)),
        ];
        vec(event, 0..40)
    }

    /// The same by definition: frames in the order in which they came, and a search for each that leaves.
    #[derive(Default)]
    struct Definition {
        frames: Vec<(usize, Option<i32>)>,
    }

    impl Definition {
        fn next(&self) -> Option<usize> {
            let fixed = self.frames.iter().position(|(_, urgency)| urgency.is_none());
            let free = &self.frames[..fixed.unwrap_or(self.frames.len())];
            let most = free.iter().map(|&(_, urgency)| urgency).max();
            let first = most.and_then(|most| free.iter().position(|&(_, urgency)| urgency == most));
            first.or(fixed)
        }

        fn pop(&mut self) -> Option<(usize, Option<i32>)> {
            self.next().map(|next| self.frames.remove(next))
        }

        /// Who has overtaken others before stays before them.
        fn lift(&mut self, by: usize, urgency: i32) {
            self.frames = std::iter::from_fn(|| self.pop()).collect();
            let meant = self.frames.iter_mut().filter(|(frame, _)| frame % by == 0);
            meant.for_each(|(_, now)| *now = now.map(|now| now.max(urgency)));
        }
    }

    proptest! {
        #[test]
        fn frames_leave_as_the_definition_says(events in events()) {
            let (mut queue, mut definition, mut came) = (UrgencyQueue::default(), Definition::default(), 0..);
            for event in events {
                let mut push = |queue: &mut UrgencyQueue<usize>, definition: &mut Definition, urgency| {
                    let number = came.next().expect("there are many numbers");
                    queue.push(number, urgency);
                    definition.frames.push((number, urgency));
                };
                match event {
                    Event::Push(urgency) => push(&mut queue, &mut definition, urgency),
                    Event::Lift(by, urgency) => {
                        queue.lift(|frame| frame % by == 0, urgency);
                        definition.lift(by, urgency);
                    }
                    Event::Write(most, leave, begins, come) => {
                        let mut taken = queue.take(most);
                        for _ in 0..leave.min(taken.len()) {
                            let left = taken.pop_front().map(|waiting| waiting.frame);
                            prop_assert_eq!(left, definition.pop().map(|(frame, _)| frame));
                        }
                        if let Some(front) = taken.front_mut().filter(|_| begins) {
                            front.fix();
                            let (frame, _) = definition.pop().expect("it is not empty");
                            definition.frames.insert(0, (frame, None));
                        }
                        come.into_iter().for_each(|urgency| push(&mut queue, &mut definition, urgency));
                        queue.put_back(taken);
                    }
                }
            }
            let order = std::iter::from_fn(|| definition.pop()).map(|(frame, _)| frame);
            prop_assert!(std::iter::from_fn(|| queue.pop()).eq(order));
        }

        #[test]
        fn of_one_urgency_the_first_in_is_the_first_out(urgency in -1..3i32, fixed in vec(any::<bool>(), 0..40)) {
            let mut queue = UrgencyQueue::default();
            fixed.iter().enumerate().for_each(|(i, &fixed)| queue.push(i, (!fixed).then_some(urgency)));
            prop_assert!(queue.iter().copied().eq(0..fixed.len()));
        }
    }

    #[test]
    fn an_urgent_value_overtakes_bulk_and_nothing_that_is_fixed() {
        let mut queue = UrgencyQueue::default();
        for (frame, urgency) in
            [("bulk", Some(0)), ("leave", None), ("more bulk", Some(0)), ("urgent", Some(1))]
        {
            queue.push(frame, urgency);
        }
        assert!(queue.iter().copied().eq(["bulk", "leave", "urgent", "more bulk"]));
    }
}
