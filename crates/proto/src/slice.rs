//! How far one slice has come.

use crate::executor::Arrival;
use crate::program::Program;

/// One slice: the state of each input and output of the program.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    pub(crate) inputs: Vec<InputState>,
    pub(crate) outputs: Vec<OutputState>,
    /// Inputs not taken in and outputs not acknowledged: 0 means that the slice needs nothing more.
    pub(crate) open: u32,
    /// Inputs not taken in and outputs that still read the caller's memory: 0 means that the caller may go on.
    pub(crate) busy: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct InputState {
    /// What has arrived, by position in the input's sends.
    pub(crate) arrivals: Vec<Option<Arrival>>,
    pub(crate) missing: u32,
    pub(crate) queued: bool,
    pub(crate) done: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct OutputState {
    pub(crate) begun: bool,
    /// Peers on this host can read it.
    pub(crate) exposed: bool,
    /// Sends over a wire whose bytes have not all left.
    pub(crate) leaving: u32,
    /// Who has acknowledged, by position in the output's sends.
    pub(crate) read: Vec<bool>,
    /// How many have not.
    pub(crate) unread: u32,
    pub(crate) released: bool,
}

impl Slice {
    /// Slice number `slice`, in which the chunks that are shorter have no part.
    pub(crate) fn new(program: &Program, has_part: impl Fn(u32) -> bool) -> Slice {
        let inputs: Vec<InputState> =
            program.inputs.iter().map(|i| InputState::new(i.sends.len(), has_part(i.chunk))).collect();
        let outputs: Vec<OutputState> =
            program.outputs.iter().map(|o| OutputState::new(o.sends.len(), has_part(o.chunk))).collect();
        let waiting =
            inputs.iter().filter(|i| !i.done).count() + outputs.iter().filter(|o| !o.released).count();
        Slice { inputs, outputs, open: waiting as u32, busy: waiting as u32 }
    }
}

impl InputState {
    fn new(sends: usize, has_part: bool) -> InputState {
        let arrivals = if has_part { vec![None; sends] } else { Vec::new() };
        InputState { missing: arrivals.len() as u32, arrivals, queued: !has_part, done: !has_part }
    }
}

impl OutputState {
    fn new(sends: usize, has_part: bool) -> OutputState {
        if has_part {
            return OutputState { read: vec![false; sends], unread: sends as u32, ..OutputState::default() };
        }
        OutputState { begun: true, exposed: true, released: true, ..OutputState::default() }
    }
}
