//! One direction of a pair: what comes from one socket goes to the other, and so does its end.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};

/// So many pieces are handed on in a turn: then others have theirs.
const PIECES: usize = 16;

/// Where a turn ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Until something comes in, or there is room again.
    Waits,
    /// There may be more at once.
    More,
}

#[derive(Default)]
pub(super) struct Pipe {
    /// Read and not yet taken by the receiver: no more is read before it has. Empty, it has no memory.
    left: Vec<u8>,
    /// The sender has ended; and so has been the receiver's.
    ended: bool,
    over: bool,
    /// The receiver takes nothing any more.
    deaf: bool,
}

impl Pipe {
    /// Hands on what there is. Neither socket blocks; `room` is for what is read at once.
    pub(super) fn pump(&mut self, mut from: &TcpStream, to: &TcpStream, room: &mut [u8]) -> Turn {
        for _ in 0..PIECES {
            let left = std::mem::take(&mut self.left);
            if !self.hand_on(&left, to) {
                return Turn::Waits;
            }
            if self.ended {
                if !std::mem::replace(&mut self.over, true) {
                    let _ = to.shutdown(Shutdown::Write);
                }
                return Turn::Waits;
            }
            match from.read(room) {
                Ok(0) => self.ended = true,
                Ok(bytes) if !self.hand_on(&room[..bytes], to) => return Turn::Waits,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Turn::Waits,
                Err(e) if e.kind() != io::ErrorKind::Interrupted => self.ended = true,
                _ => {}
            }
        }
        Turn::More
    }

    /// Nothing more comes this way, and the receiver knows.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Keeps what the receiver has no room for. Whether it has taken all; one that is gone takes everything.
    fn hand_on(&mut self, mut bytes: &[u8], mut to: &TcpStream) -> bool {
        while !bytes.is_empty() && !self.deaf {
            match to.write(bytes) {
                Ok(taken) => bytes = &bytes[taken..],
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.left = bytes.to_vec();
                    return false;
                }
                Err(_) => self.deaf = true,
            }
        }
        true
    }
}
