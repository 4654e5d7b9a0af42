//! Proves that no sends wait for each other.

use crate::record::Send;
use crate::{Hop, ScheduleError, Waits};

/// Checks that each `after` can be seen by the waiting rank, and that the waits have no cycle.
///
/// What the steps imply always points to an earlier moment (a send of step `t` starts at `2t`, its arrival
/// takes effect at `2t + 1`). So only an `after` that names a send of the same or a later step can close a
/// cycle, and without one nothing is searched.
pub(crate) fn check_waits(sends: &[Send]) -> Result<(), ScheduleError> {
    let mut backward = false;
    for send in sends {
        for &index in &send.after {
            let other = &sends[index as usize];
            if other.src != send.src && other.dst != send.src {
                return Err(ScheduleError::AfterUnseen { at: Hop::of(send), other: Hop::of(other) });
            }
            backward |= other.step >= send.step;
        }
    }
    if backward {
        Search::new(sends).run()
    } else {
        Ok(())
    }
}

/// A moment of the run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// A send reads its value and starts.
    Start(usize),
    /// An arrival takes effect.
    Effect(usize),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    New,
    Open,
    Done,
}

/// A depth-first search through what each moment waits for.
struct Search<'a> {
    sends: &'a [Send],
    waits: Waits,
    marks: Vec<Mark>,
    /// The moments on the current path, with those they wait for that are still to be looked at.
    path: Vec<(Moment, Vec<Moment>)>,
}

impl<'a> Search<'a> {
    fn new(sends: &'a [Send]) -> Self {
        let waits = Waits::new(sends);
        let marks = vec![Mark::New; sends.len() + waits.arrivals().len()];
        Search { sends, waits, marks, path: Vec::new() }
    }

    fn run(mut self) -> Result<(), ScheduleError> {
        for send in 0..self.sends.len() {
            self.enter(Moment::Start(send))?;
            while let Some((moment, ahead)) = self.path.last_mut() {
                let (moment, next) = (*moment, ahead.pop());
                match next {
                    Some(next) => self.enter(next)?,
                    None => self.leave(moment),
                }
            }
        }
        Ok(())
    }

    fn enter(&mut self, moment: Moment) -> Result<(), ScheduleError> {
        match *self.mark(moment) {
            Mark::Done => Ok(()),
            Mark::Open => Err(self.cycle(moment)),
            Mark::New => {
                *self.mark(moment) = Mark::Open;
                let ahead = self.awaited(moment);
                self.path.push((moment, ahead));
                Ok(())
            }
        }
    }

    fn leave(&mut self, moment: Moment) {
        *self.mark(moment) = Mark::Done;
        self.path.pop();
    }

    fn mark(&mut self, moment: Moment) -> &mut Mark {
        match moment {
            Moment::Start(send) => &mut self.marks[send],
            Moment::Effect(arrival) => &mut self.marks[self.sends.len() + arrival],
        }
    }

    fn awaited(&self, moment: Moment) -> Vec<Moment> {
        let starts =
            |sends: &[u32]| sends.iter().map(|&send| Moment::Start(send as usize)).collect::<Vec<_>>();
        match moment {
            Moment::Start(send) => {
                let after = self.sends[send].after.iter().map(|&other| self.seen(send, other as usize));
                after.chain(self.waits.carries(send).map(Moment::Effect)).collect()
            }
            Moment::Effect(arrival) => {
                let mut all = starts(self.waits.members(arrival));
                all.extend(starts(self.waits.readers(arrival)));
                all.extend(self.waits.arrivals()[arrival].previous.map(Moment::Effect));
                all
            }
        }
    }

    /// What `send` sees of `other`: its start if both leave the same rank, else its effect.
    fn seen(&self, send: usize, other: usize) -> Moment {
        if self.sends[other].src == self.sends[send].src {
            Moment::Start(other)
        } else {
            Moment::Effect(self.waits.part_of(other))
        }
    }

    fn cycle(&self, closing: Moment) -> ScheduleError {
        // The closing moment is open, so it is on the path.
        let start = self.path.iter().position(|(moment, _)| *moment == closing).unwrap_or(0);
        let mut hops: Vec<Hop> = self.path[start..].iter().map(|(moment, _)| self.hop(*moment)).collect();
        hops.dedup();
        let at = hops.remove(0);
        ScheduleError::CyclicWait { at, via: hops }
    }

    /// The send itself, or the first one of an arrival.
    fn hop(&self, moment: Moment) -> Hop {
        match moment {
            Moment::Start(send) => Hop::of(&self.sends[send]),
            Moment::Effect(arrival) => Hop::of(&self.sends[self.waits.members(arrival)[0] as usize]),
        }
    }
}
