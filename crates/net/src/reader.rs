//! The receiving side of a socket: puts messages together, and their payload where the engine wants it.

use std::io::{self, IoSliceMut};

use crate::message::{Kind, Message, MESSAGE_BYTES};
use crate::stream::Socket;

/// No honest peer sends longer pieces, nor longer texts.
const MAX_PIECE: u32 = 1 << 20;
const MAX_TEXT: u32 = 64 << 10;
/// Read ahead of what is asked for, so that several small messages cost one call.
const AHEAD_BYTES: usize = 16 << 10;

/// Where a payload goes.
pub(crate) enum Body {
    /// Memory of its own.
    Owned(Vec<u8>),
    /// The caller's memory: where the value belongs in the end. It is asked for anew before each call that writes it.
    Placed,
    /// It is not wanted any more.
    Unwanted(Vec<u8>),
}

/// Who takes in what is read.
pub(crate) trait Sink {
    /// Chooses where the payload of a message goes.
    fn place(&mut self, message: &Message) -> Body;

    /// The address for the payload of a message that was to be `Placed`; `None` if it is not wanted any more.
    fn address(&mut self, message: &Message) -> Option<*mut u8>;

    /// A whole message has come.
    fn take(&mut self, message: Message, body: Body);
}

/// A message whose payload is under way.
struct Incoming {
    message: Message,
    body: Body,
    filled: usize,
}

impl Incoming {
    fn missing(&self) -> usize {
        let payload = if self.message.kind.has_payload() { self.message.bytes as usize } else { 0 };
        payload - self.filled
    }

    /// The memory that is still to be filled.
    fn rest(&mut self, sink: &mut impl Sink) -> &mut [u8] {
        let (filled, missing) = (self.filled, self.missing());
        if let (Body::Placed, true) = (&self.body, missing > 0) {
            match sink.address(&self.message) {
                // SAFETY: the sink gives memory as long as the payload, and keeps it while it holds its lock.
                Some(address) => unsafe {
                    return std::slice::from_raw_parts_mut(address.add(filled), missing);
                },
                None => self.body = Body::Unwanted(vec![0; filled + missing]),
            }
        }
        match &mut self.body {
            Body::Owned(bytes) | Body::Unwanted(bytes) => &mut bytes[filled..],
            Body::Placed => &mut [],
        }
    }
}

/// See the module's documentation.
pub(crate) struct Reader {
    ahead: Box<[u8]>,
    /// What of `ahead` has been read and not been used.
    from: usize,
    to: usize,
    incoming: Option<Incoming>,
}

impl Default for Reader {
    fn default() -> Reader {
        Reader { ahead: vec![0; AHEAD_BYTES].into(), from: 0, to: 0, incoming: None }
    }
}

impl Reader {
    /// Reads all there is, handing on each whole message. `Ok(false)` at the end of the stream.
    pub(crate) fn read(&mut self, socket: &Socket, sink: &mut impl Sink) -> io::Result<bool> {
        loop {
            self.use_up(sink)?;
            match self.read_some(socket, sink) {
                Ok(0) => return Ok(false),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// One call: the payload first, and behind it what comes next.
    fn read_some(&mut self, socket: &Socket, sink: &mut impl Sink) -> io::Result<usize> {
        self.ahead.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        let (_, free) = self.ahead.split_at_mut(self.to);
        let body = self.incoming.as_mut().map_or(&mut [][..], |i| i.rest(sink));
        let wanted = body.len();
        let got = socket.read(&mut [IoSliceMut::new(body), IoSliceMut::new(free)])?;
        if let Some(incoming) = &mut self.incoming {
            incoming.filled += got.min(wanted);
        }
        self.to += got.saturating_sub(wanted);
        Ok(got)
    }

    /// Hands on all messages that are complete.
    fn use_up(&mut self, sink: &mut impl Sink) -> io::Result<()> {
        loop {
            if let Some(incoming) = &mut self.incoming {
                let body = incoming.rest(sink);
                let step = body.len().min(self.to - self.from);
                body[..step].copy_from_slice(&self.ahead[self.from..self.from + step]);
                self.from += step;
                incoming.filled += step;
                if incoming.missing() > 0 {
                    return Ok(());
                }
            }
            if let Some(Incoming { message, body, .. }) = self.incoming.take() {
                sink.take(message, body);
            }
            let ready = &self.ahead[self.from..self.to];
            let Some(head) = ready.first_chunk::<MESSAGE_BYTES>() else { return Ok(()) };
            let message = parse(head)?;
            self.from += MESSAGE_BYTES;
            let body = sink.place(&message);
            self.incoming = Some(Incoming { message, body, filled: 0 });
        }
    }
}

fn parse(head: &[u8; MESSAGE_BYTES]) -> io::Result<Message> {
    let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
    let message = Message::decode(head)
        .ok_or_else(|| invalid("something that is not a message of tweed came in".into()))?;
    let most = if message.kind == Kind::Carried { MAX_PIECE } else { MAX_TEXT };
    if message.kind.has_payload() && message.bytes > most {
        return Err(invalid(format!("a message claims to carry {} bytes", message.bytes)));
    }
    Ok(message)
}
