//! The way of an output: it is begun, shown to its readers, read by them, and released.

use std::sync::Arc;

use tweed_schedule::Rank;

use super::{Action, Executor, Notice, Signal};
use crate::executor::slice::OutputStage;
use crate::program::Wait;

impl Executor {
    /// Starts an output if its value is there and nothing holds it back; then those that wait for it.
    pub(super) fn try_output(&mut self, slice: u32, index: u32) {
        self.try_outputs(slice, vec![index]);
    }

    /// Starts outputs, the last one first, each followed by those that wait for it. A loop: chains of outputs that
    /// wait for each other may be as long as a link has sends.
    fn try_outputs(&mut self, slice: u32, mut waiting: Vec<u32>) {
        let program = Arc::clone(&self.program);
        while let Some(index) = waiting.pop() {
            if self.start(slice, index) {
                waiting.extend(program.outputs[index as usize].awaited_by.iter().rev());
            }
        }
    }

    /// Starts an output if it can; says whether peers can read it now.
    fn start(&mut self, slice: u32, index: u32) -> bool {
        let program = Arc::clone(&self.program);
        let output = &program.outputs[index as usize];
        let state = self.state(slice);
        let made = output.made_by.is_none_or(|i| state.inputs[i as usize].is_done());
        let free = output.after.iter().all(|wait| match *wait {
            Wait::Input(i) => state.inputs[i as usize].is_done(),
            Wait::Output(o) => state.outputs[o as usize].is_exposed(),
        });
        if state.outputs[index as usize].stage > OutputStage::Waiting || !made || !free {
            return false;
        }
        self.begin(slice, index, &[]);
        let shared = output.sends.iter().any(|&(_, dst)| self.is_shared(dst));
        // Peers may see it, and what waits for that may start, only when the copy is made.
        if shared && !self.layout.in_place {
            self.departures.push_back(Action::Stage { output: index, slice });
            return false;
        }
        self.show(slice, index, &[]);
        true
    }

    /// Queues what goes over wires.
    pub(super) fn begin(&mut self, slice: u32, index: u32, placed: &[u32]) {
        let program = Arc::clone(&self.program);
        let sends = program.outputs[index as usize].sends.iter();
        let far = sends.filter(|(s, dst)| !self.is_shared(*dst) && !placed.contains(s));
        let wires: Vec<&(u32, Rank)> = far.collect();
        let state = &mut self.state(slice).outputs[index as usize];
        state.stage = OutputStage::Begun;
        state.leaving = wires.len() as u32;
        for &&(send, to) in &wires {
            self.departures.push_back(Action::Transmit { send, to, output: index, slice });
        }
    }

    /// Peers on this host can read the output now: tell them. Then start what waits for it.
    pub(super) fn expose(&mut self, slice: u32, index: u32, placed: &[u32]) {
        self.show(slice, index, placed);
        let waiting = self.program.outputs[index as usize].awaited_by.iter().rev().copied().collect();
        self.try_outputs(slice, waiting);
    }

    /// Tells the peers on this host that they can read the output.
    fn show(&mut self, slice: u32, index: u32, placed: &[u32]) {
        let program = Arc::clone(&self.program);
        let output = &program.outputs[index as usize];
        self.state(slice).outputs[index as usize].stage = OutputStage::Exposed;
        let writable = self.layout.in_place && output.answered_in_place;
        let what = Notice::Readable { output: index, writable };
        let readers = output.sends.iter().filter(|(s, dst)| self.is_shared(*dst) && !placed.contains(s));
        let signals: Vec<Signal> = readers.map(|&(send, to)| Signal { to, send, slice, what }).collect();
        self.signals.extend(signals);
        for (position, _) in (0..).zip(&output.sends).filter(|(_, s)| placed.contains(&s.0)) {
            // The answer lies in the peer's buffer, so nothing is left to read here.
            let _ = self.acknowledge(slice, index, position);
        }
        self.forgive(slice, index);
        self.try_release(slice, index);
    }

    pub(super) fn acknowledge(&mut self, slice: u32, index: u32, at: usize) -> Result<(), &'static str> {
        let state = self.state(slice);
        let output = &mut state.outputs[index as usize];
        let read = output.read.get_mut(at).ok_or("a piece that this chunk does not have")?;
        if std::mem::replace(read, true) {
            return Err("an acknowledgement that has come before");
        }
        output.unread -= 1;
        if output.unread == 0 {
            state.open -= 1;
        }
        self.try_release(slice, index);
        Ok(())
    }

    /// Counts the ranks that are gone among those that have read.
    pub(super) fn forgive(&mut self, slice: u32, index: u32) {
        let program = Arc::clone(&self.program);
        for (position, &(_, dst)) in program.outputs[index as usize].sends.iter().enumerate() {
            if self.gone.contains(&dst) {
                // One that had read before it went is counted already.
                let _ = self.acknowledge(slice, index, position);
            }
        }
    }

    /// Lets the value be overwritten once nobody reads it from the caller's memory.
    pub(super) fn try_release(&mut self, slice: u32, index: u32) {
        // A staged copy is read in place of the caller's memory, which may then change at once.
        let in_place = self.layout.in_place;
        let state = &mut self.state(slice).outputs[index as usize];
        let read = !in_place || state.unread == 0;
        if state.stage != OutputStage::Exposed || state.leaving > 0 || !read {
            return;
        }
        state.stage = OutputStage::Released;
        self.less_busy(slice);
        if let Some(input) = self.program.outputs[index as usize].overwritten_by {
            self.try_input(slice, input);
        }
    }
}
