//! One rank's part of one collective, as a state machine.
//!
//! In: [`Executor::handle_ready`] (a peer's value can be read), [`Executor::handle_read`] (a peer has read ours),
//! [`Executor::finished`] (the caller carried out an action). Out: [`Executor::poll`].
//!
//! # Theory of operation
//!
//! A buffer is worked through in *slices*, at most `window` of them side by side, each by the same [`Program`]. A slice is
//! *open* from the moment it enters the window (or a faster peer speaks of it) until nothing of it is missing; slices
//! close in order. Nobody waits for a step to end: what a send really waits for is in the program.
//!
//! | an **input** is | until | then |
//! |---|---|---|
//! | waiting | all its arrivals are there, and what it overwrites is done and released | a `Combine` is queued |
//! | queued | the caller has done the arithmetic ([`Executor::finished`]), in rank order whatever the order of arrival | its sources are acknowledged, the outputs that it feeds are tried |
//! | done | | |
//!
//! A value that a peer placed where it belongs takes an input from waiting to done at once.
//!
//! | an **output** is | until | then |
//! |---|---|---|
//! | waiting | its value is made, and what goes before it on the same link is exposed | what goes over wires is queued |
//! | begun | its value is staged, if peers on this host read it and the caller's memory is private | those peers are told |
//! | exposed | all wires have taken their bytes, and, in place, all peers have read it | what overwrites it is tried |
//! | released | | |
//!
//! Acknowledgements are counted apart from that: a slice stays open until all have come, but the caller may go on
//! ([`Executor`]'s `busy`) once nothing reads his memory. A rank that is gone counts as having acknowledged everything.
//!
//! What cannot happen: a value is read after it was overwritten, or overwritten while it is read; two sums of the same
//! values differ in a bit; a peer's message that does not fit the state changes it (it is an error by name).

mod action;
mod outputs;
mod queries;
mod slice;

use std::collections::VecDeque;
use std::sync::Arc;

use tweed_schedule::Rank;

use crate::executor::slice::{InputStage, OutputStage, Slice};
use crate::layout::{Layout, Reach};
use crate::program::{Input, Program};

pub use action::{Action, Arrival, Combine, Notice, Ready, Signal};

/// The state machine of one operation.
#[derive(Clone, Debug)]
pub struct Executor {
    program: Arc<Program>,
    layout: Layout,
    total: u32,
    /// The first slice that is not closed.
    low: u32,
    /// Slices from here on have not been opened.
    next: u32,
    slices: VecDeque<Slice>,
    /// Slices in which the caller's memory is still in use.
    busy: u32,
    signals: VecDeque<Signal>,
    combines: VecDeque<Combine>,
    departures: VecDeque<Action>,
    /// Ranks that will acknowledge nothing any more.
    gone: Vec<Rank>,
}

impl Executor {
    /// Starts: outputs of the values at hand can be polled at once.
    ///
    /// # Panics
    /// If `layout` works in place and the program does not allow it: the ranks would wait for each other for ever.
    pub fn new(program: Arc<Program>, layout: Layout) -> Executor {
        assert!(
            program.allows_in_place() || !layout.in_place,
            "this program overwrites values while they are sent: set Layout::in_place to false"
        );
        let touched = program.inputs.iter().map(|i| i.chunk).chain(program.outputs.iter().map(|o| o.chunk));
        let total = touched.map(|chunk| layout.slices(chunk)).max().unwrap_or(0);
        let mut executor = Executor {
            program,
            layout,
            total,
            low: 0,
            next: 0,
            slices: VecDeque::new(),
            busy: total,
            signals: VecDeque::new(),
            combines: VecDeque::new(),
            departures: VecDeque::new(),
            gone: Vec::new(),
        };
        executor.open_slices();
        executor
    }

    /// A peer says that its value of `send` can be read, or has been placed. Errors name what was wrong with it.
    pub fn handle_ready(&mut self, slice: u32, send: u32, ready: Ready) -> Result<(), &'static str> {
        let (input, position) = self.program.arrival(send).ok_or("a send that does not end at this rank")?;
        self.reach_slice(slice)?;
        let state = &mut self.slices[(slice - self.low) as usize].inputs[input as usize];
        // A chunk that is shorter than others has no part in the last slices.
        let arrivals = state.arrivals.get_mut(position).ok_or("a piece that this chunk does not have")?;
        if arrivals.is_some() || state.stage == InputStage::Done {
            return Err("a piece that has arrived before");
        }
        match ready {
            Ready::Readable(arrival) => {
                *arrivals = Some(arrival);
                state.missing -= 1;
                self.try_input(slice, input);
            }
            Ready::Placed if self.may_be_placed(slice, input) => self.take_placed(slice, input),
            Ready::Placed => return Err("an answer written where none was allowed"),
        }
        self.close_slices();
        Ok(())
    }

    /// What `input` overwrites is needed no more.
    fn is_free(state: &Slice, input: &Input) -> bool {
        let before = input.previous.is_none_or(|p| state.inputs[p as usize].is_done());
        before && input.overwrites.iter().all(|&o| state.outputs[o as usize].is_released())
    }

    /// A peer says that it has read this rank's value of `send`.
    pub fn handle_read(&mut self, slice: u32, send: u32) -> Result<(), &'static str> {
        let place = self.program.place_of(send);
        let (output, position) = place.ok_or("a send that does not start at this rank")?;
        if slice < self.low || slice >= self.next {
            return Err("a slice that is not under way");
        }
        if self.state(slice).outputs[output as usize].stage == OutputStage::Waiting {
            return Err("an acknowledgement of a value that has not left");
        }
        self.acknowledge(slice, output, position)?;
        self.close_slices();
        Ok(())
    }

    /// `rank` is gone: what it has not read, it never will, and nobody waits for that.
    pub fn handle_gone(&mut self, rank: Rank) {
        self.gone.push(rank);
        for slice in self.low..self.next {
            for output in 0..self.program.outputs.len() as u32 {
                if self.state(slice).outputs[output as usize].is_exposed() {
                    self.forgive(slice, output);
                }
            }
        }
        self.close_slices();
    }

    /// The caller has carried out `action`.
    pub fn finished(&mut self, action: &Action) {
        match action {
            Action::Signal(_) => {}
            Action::Combine(combine) => self.finish_combine(combine),
            Action::Stage { output, slice } => self.expose(*slice, *output, &[]),
            Action::Transmit { output, slice, .. } => {
                self.state(*slice).outputs[*output as usize].leaving -= 1;
                self.try_release(*slice, *output);
            }
        }
        self.close_slices();
    }

    /// What to do next: signals first, then arithmetic, then what leaves.
    #[must_use]
    pub fn poll(&mut self) -> Option<Action> {
        // Signals let other ranks go on, so they come before this rank's own work.
        if let Some(signal) = self.signals.pop_front() {
            return Some(Action::Signal(signal));
        }
        if let Some(combine) = self.combines.pop_front() {
            return Some(Action::Combine(combine));
        }
        self.departures.pop_front()
    }

    fn state(&mut self, slice: u32) -> &mut Slice {
        &mut self.slices[(slice - self.low) as usize]
    }

    /// Makes the state of `slice`, which a faster peer may speak of before it is opened here.
    fn reach_slice(&mut self, slice: u32) -> Result<(), &'static str> {
        // A peer that sends a chunk to this rank has all its earlier pieces taken in here before it goes on.
        let end = self.next.saturating_add(self.layout.window).min(self.total);
        if slice < self.low || slice >= end {
            return Err("a slice that is not under way");
        }
        while self.low + self.slices.len() as u32 <= slice {
            let number = self.low + self.slices.len() as u32;
            let layout = &self.layout;
            self.slices.push_back(Slice::new(&self.program, |chunk| number < layout.slices(chunk)));
        }
        Ok(())
    }

    fn open_slices(&mut self) {
        while self.next < self.total && self.next - self.low < self.layout.window {
            let slice = self.next;
            self.next += 1;
            self.reach_slice(slice).expect("an open slice lies below the total");
            for output in 0..self.program.outputs.len() as u32 {
                self.try_output(slice, output);
            }
            for input in 0..self.program.inputs.len() as u32 {
                self.try_input(slice, input);
            }
        }
    }

    fn close_slices(&mut self) {
        let is_closed = |slice: &Slice| slice.open == 0 && slice.busy == 0;
        loop {
            while self.slices.front().is_some_and(is_closed) {
                self.slices.pop_front();
                self.low += 1;
            }
            self.open_slices();
            // One whose readers are all gone is closed as soon as it was opened.
            if !self.slices.front().is_some_and(is_closed) {
                return;
            }
        }
    }

    /// Queues an input if all it needs is there.
    fn try_input(&mut self, slice: u32, index: u32) {
        // A faster peer has spoken of it, but this rank's window has not come to it.
        if slice >= self.next {
            return;
        }
        let program = Arc::clone(&self.program);
        let input = &program.inputs[index as usize];
        let state = self.state(slice);
        let free = Self::is_free(state, input);
        let ready = &mut state.inputs[index as usize];
        if ready.stage > InputStage::Waiting || ready.missing > 0 || !free {
            return;
        }
        ready.stage = InputStage::Queued;
        let combine = self.plan_combine(slice, index);
        self.combines.push_back(combine);
    }

    /// Decides what is done in the same pass over memory: staging the result, and writing answers in place.
    fn plan_combine(&mut self, slice: u32, index: u32) -> Combine {
        let program = Arc::clone(&self.program);
        let input = &program.inputs[index as usize];
        let mut combine = Combine { input: index, slice, stage: None, puts: Vec::new() };
        // Several outputs of the value may wait for different things, so each is begun by itself.
        let [feed] = input.feeds[..] else { return combine };
        let output = &program.outputs[feed as usize];
        // It may not be shown before what the schedule puts in front of it.
        if !output.after.is_empty() {
            return combine;
        }
        let arrivals = self.arrivals(slice, index);
        for (position, &(_, src)) in input.sends.iter().enumerate() {
            let answer = output.sends.iter().find(|&&(_, dst)| dst == src);
            if let (Some(Arrival { writable: true, .. }), Some(&(send, _))) = (arrivals[position], answer) {
                combine.puts.push((position as u32, send));
            }
        }
        let put = |send: u32| combine.puts.iter().any(|&(_, answer)| answer == send);
        let mut readers = output.sends.iter();
        let readers = readers.any(|&(send, dst)| self.is_shared(dst) && !put(send));
        combine.stage = (readers && !self.layout.in_place).then_some(feed);
        combine
    }

    fn finish_combine(&mut self, combine: &Combine) {
        let program = Arc::clone(&self.program);
        let input = &program.inputs[combine.input as usize];
        for (position, &(send, src)) in input.sends.iter().enumerate() {
            let put = combine.puts.iter().find(|&&(p, _)| p as usize == position);
            let (send, what) = put.map_or((send, Notice::Read), |&(_, answer)| (answer, Notice::Placed));
            self.signals.push_back(Signal { to: src, send, slice: combine.slice, what });
        }
        let placed: Vec<u32> = combine.puts.iter().map(|&(_, send)| send).collect();
        self.mark_done(combine.slice, combine.input);
        for &output in &input.feeds {
            if combine.stage == Some(output) || !placed.is_empty() {
                self.begin(combine.slice, output, &placed);
                self.expose(combine.slice, output, &placed);
            } else {
                self.try_output(combine.slice, output);
            }
        }
        self.follow(combine.slice, combine.input);
    }

    /// Every value it overwrites lies exposed to the one peer that may answer over it.
    fn may_be_placed(&self, slice: u32, input: u32) -> bool {
        let slice = &self.slices[(slice - self.low) as usize];
        let given_away = |&o: &u32| {
            let (output, state) = (&self.program.outputs[o as usize], &slice.outputs[o as usize]);
            let shared = self.is_shared(output.sends[0].1);
            output.answered_in_place && shared && state.is_exposed() && state.unread > 0
        };
        let overwritten = &self.program.inputs[input as usize].overwrites;
        self.layout.in_place && !overwritten.is_empty() && overwritten.iter().all(given_away)
    }

    /// The peer has written its answer over the value that this rank had exposed: both are settled.
    fn take_placed(&mut self, slice: u32, index: u32) {
        let overwritten = self.program.inputs[index as usize].overwrites.clone();
        let state = &mut self.state(slice).inputs[index as usize];
        state.missing = 0;
        // What it overwrites is released below: that is not to queue it.
        state.stage = InputStage::Queued;
        for output in overwritten {
            // `may_be_placed` has seen that its one send is unread, so this cannot be refused.
            let _ = self.acknowledge(slice, output, 0);
        }
        self.mark_done(slice, index);
        for output in self.program.inputs[index as usize].feeds.clone() {
            self.try_output(slice, output);
        }
        self.follow(slice, index);
    }

    fn mark_done(&mut self, slice: u32, input: u32) {
        let state = self.state(slice);
        state.inputs[input as usize].stage = InputStage::Done;
        state.open -= 1;
        self.less_busy(slice);
    }

    fn less_busy(&mut self, slice: u32) {
        let state = self.state(slice);
        state.busy -= 1;
        if state.busy == 0 {
            self.busy -= 1;
        }
    }

    /// What may go on now that `input` is taken in.
    fn follow(&mut self, slice: u32, input: u32) {
        if let Some(next) = self.program.inputs[input as usize].next {
            self.try_input(slice, next);
        }
        for output in self.program.inputs[input as usize].awaited_by.clone() {
            self.try_output(slice, output);
        }
    }

    fn is_shared(&self, rank: Rank) -> bool {
        self.layout.reach[rank as usize] == Reach::Shared
    }
}
