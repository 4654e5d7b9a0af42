//! How an executor stands: nothing here changes it.

use tweed_schedule::Rank;

use super::{Arrival, Executor};
use crate::executor::slice::OutputState;
use crate::layout::Layout;
use crate::program::{Input, Program};

impl Executor {
    /// The program it runs.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The sizes it runs with.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// All inputs are taken in and the caller's memory is no longer read: the caller may go on.
    pub fn is_finished(&self) -> bool {
        self.busy == 0
    }

    /// Nothing is needed any more, by peers neither, and all signals have been polled: what was staged may be freed.
    pub fn is_closed(&self) -> bool {
        self.all_slices_closed() && self.signals.is_empty()
    }

    pub(crate) fn all_slices_closed(&self) -> bool {
        self.low == self.total
    }

    /// The value of `input` may be written where it belongs before [`Executor::handle_ready`]: it has not come yet,
    /// and nothing that lies there is still needed.
    pub fn may_land(&self, slice: u32, input: u32) -> bool {
        let Some(state) = slice.checked_sub(self.low).and_then(|i| self.slices.get(i as usize)) else {
            return false;
        };
        let (ready, spec) = (&state.inputs[input as usize], &self.program.inputs[input as usize]);
        slice < self.next && ready.missing > 0 && !ready.is_done() && Self::is_free(state, spec)
    }

    /// Values of it wait to leave over a wire, or leave.
    pub fn is_sending(&self) -> bool {
        self.slices.iter().flat_map(|slice| &slice.outputs).any(|output| output.leaving > 0)
    }

    /// What has arrived for `input` of `slice`, by position in the input's sends.
    pub fn arrivals(&self, slice: u32, input: u32) -> &[Option<Arrival>] {
        &self.slices[(slice - self.low) as usize].inputs[input as usize].arrivals
    }

    /// At least so many `ready` signals must come in before anything can happen; `None` if a `read` would do.
    pub fn missing(&self) -> Option<u32> {
        // An acknowledgement would open another slice, or let a buffer be overwritten.
        if self.next < self.total || self.layout.in_place {
            return None;
        }
        self.slices.iter().flat_map(|s| &s.inputs).filter(|i| i.missing > 0).map(|i| i.missing).min()
    }

    /// The ranks whose signals this rank waits for, ascending, each once.
    pub fn waits_for(&self) -> Vec<Rank> {
        let mut ranks = Vec::new();
        for slice in self.slices.iter().take((self.next - self.low) as usize) {
            for (state, input) in slice.inputs.iter().zip(&self.program.inputs) {
                let absent =
                    state.arrivals.iter().zip(&input.sends).filter(|(a, _)| a.is_none() && state.missing > 0);
                ranks.extend(absent.map(|(_, &(_, src))| src));
            }
        }
        if ranks.is_empty() && self.busy > 0 {
            ranks = self.readers(|output| !output.is_released());
        }
        if ranks.is_empty() && self.next < self.total {
            // What is staged for them fills the window, so the next slice cannot begin.
            ranks = self.readers(|_| true);
        }
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// Some value of `rank` has not come yet, in slices that are open or in later ones: without it this rank cannot end.
    pub fn will_need(&self, rank: Rank) -> bool {
        let from_rank = |input: &Input| input.sends.iter().position(|&(_, src)| src == rank);
        let inputs = || self.program.inputs.iter().enumerate();
        let known = self.low + self.slices.len() as u32;
        let open = self.slices.iter().any(|slice| {
            inputs().any(|(i, input)| {
                let state = &slice.inputs[i];
                !state.is_done()
                    && from_rank(input).is_some_and(|at| state.arrivals.get(at).is_some_and(Option::is_none))
            })
        });
        let later = |input: &Input| from_rank(input).is_some() && known < self.layout.slices(input.chunk);
        open || inputs().any(|(_, input)| later(input))
    }

    /// The ranks that have not read yet what lies ready for them, in outputs that are `meant`.
    fn readers(&self, meant: impl Fn(&OutputState) -> bool) -> Vec<Rank> {
        let outputs = self.slices.iter().flat_map(|s| s.outputs.iter().zip(&self.program.outputs));
        let pending = outputs.filter(|(state, _)| meant(state));
        let sends = pending.flat_map(|(state, output)| state.read.iter().zip(&output.sends));
        sends.filter(|(&read, _)| !read).map(|(_, &(_, dst))| dst).collect()
    }
}
