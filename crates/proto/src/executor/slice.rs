//! How far one slice has come.

use super::Arrival;
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
    pub(crate) stage: InputStage,
}

/// How far a slice of an input has come; the theory of operation in `executor` describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum InputStage {
    Waiting,
    Queued,
    Done,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct OutputState {
    pub(crate) stage: OutputStage,
    /// Sends over a wire whose bytes have not all left.
    pub(crate) leaving: u32,
    /// Who has acknowledged, by position in the output's sends.
    pub(crate) read: Vec<bool>,
    /// How many have not.
    pub(crate) unread: u32,
}

/// How far a slice of an output has come; the theory of operation in `executor` describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OutputStage {
    #[default]
    Waiting,
    Begun,
    Exposed,
    Released,
}

impl Slice {
    /// Slice number `slice`, in which the chunks that are shorter have no part.
    pub(crate) fn new(program: &Program, has_part: impl Fn(u32) -> bool) -> Slice {
        let inputs = program.inputs.iter().map(|i| InputState::new(i.sends.len(), has_part(i.chunk)));
        let outputs = program.outputs.iter().map(|o| OutputState::new(o.sends.len(), has_part(o.chunk)));
        let (inputs, outputs): (Vec<_>, Vec<_>) = (inputs.collect(), outputs.collect());
        let waiting = inputs.iter().filter(|i| !i.is_done()).count()
            + outputs.iter().filter(|o| !o.is_released()).count();
        Slice { inputs, outputs, open: waiting as u32, busy: waiting as u32 }
    }
}

impl InputState {
    fn new(sends: usize, has_part: bool) -> InputState {
        let arrivals = if has_part { vec![None; sends] } else { Vec::new() };
        let stage = if has_part { InputStage::Waiting } else { InputStage::Done };
        InputState { missing: arrivals.len() as u32, arrivals, stage }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.stage == InputStage::Done
    }
}

impl OutputState {
    fn new(sends: usize, has_part: bool) -> OutputState {
        if has_part {
            return OutputState { read: vec![false; sends], unread: sends as u32, ..OutputState::default() };
        }
        OutputState { stage: OutputStage::Released, ..OutputState::default() }
    }

    pub(crate) fn is_exposed(&self) -> bool {
        self.stage >= OutputStage::Exposed
    }

    pub(crate) fn is_released(&self) -> bool {
        self.stage == OutputStage::Released
    }
}
