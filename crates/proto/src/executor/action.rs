//! What an executor asks for, and what it is told.

use tweed_schedule::Rank;

/// A peer's value that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Where; only the caller knows what the number means.
    pub at: u64,
    /// The answer may be written there.
    pub writable: bool,
}

/// What a `ready` signal says besides which piece it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// The value can be read there.
    Readable(Arrival),
    /// The value has been written into the receiver's buffer already.
    Placed,
}

/// Something to tell a peer about one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    /// The rank that is told.
    pub to: Rank,
    /// Index of the send in the schedule.
    pub send: u32,
    /// The number of the slice.
    pub slice: u32,
    /// What the rank is told.
    pub what: Notice,
}

/// What a [`Signal`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The value of that output can be read; the answer may be written over it if `writable`.
    Readable {
        /// The output that holds it.
        output: u32,
        /// Whether it may be written to, as [`Arrival::writable`] has it.
        writable: bool,
    },
    /// The value is in the receiver's buffer.
    Placed,
    /// This rank has read the value it was sent.
    Read,
}

/// Arithmetic on one piece: `own op arrivals..` in rank order, or a copy, into all targets at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Combine {
    /// The input taken in.
    pub input: u32,
    /// The number of the slice.
    pub slice: u32,
    /// The output to stage in the same pass.
    pub stage: Option<u32>,
    /// `(position in the input's sends, index of the answering send)`: write the result there, too.
    pub puts: Vec<(u32, u32)>,
}

/// What the caller must do. All but signals are answered with [`Executor::finished`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Tell a peer what happened.
    Signal(Signal),
    /// Take in an input.
    Combine(Combine),
    /// Copy an output's value to where peers on this host read it.
    Stage {
        /// The number of the output.
        output: u32,
        /// The number of the slice.
        slice: u32,
    },
    /// Carry an output's value over a wire. Answer when the caller's memory is no longer read.
    Transmit {
        /// Index of the send in the schedule.
        send: u32,
        /// The rank that it goes to.
        to: Rank,
        /// The number of the output.
        output: u32,
        /// The number of the slice.
        slice: u32,
    },
}
