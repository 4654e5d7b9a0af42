//! The receiving side of a socket: puts messages together, and their payload where the engine wants it.

use std::io::{self, IoSliceMut};

use tweed_proto::engine::message::{Kind, Message, MESSAGE_BYTES};

use crate::link::stream::Socket;

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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use tweed_proto::engine::GroupNumber;

    use super::*;

    /// Takes everything; payloads of even pieces go to a place of their own.
    #[derive(Default)]
    struct Desk {
        place: Vec<u8>,
        taken: Vec<(u32, Vec<u8>)>,
        withdrawn: bool,
    }

    impl Sink for Desk {
        fn place(&mut self, message: &Message) -> Body {
            match message.slice % 2 {
                0 => Body::Placed,
                _ => Body::Owned(vec![0; message.bytes as usize]),
            }
        }

        fn address(&mut self, message: &Message) -> Option<*mut u8> {
            self.place.resize(message.bytes as usize, 0);
            (!self.withdrawn).then_some(self.place.as_mut_ptr())
        }

        fn take(&mut self, message: Message, body: Body) {
            match body {
                Body::Owned(bytes) => self.taken.push((message.slice, bytes)),
                Body::Placed => self.taken.push((message.slice, self.place.clone())),
                Body::Unwanted(_) => self.taken.push((message.slice, b"unwanted".to_vec())),
            }
        }
    }

    fn frame(slice: u32, bytes: usize) -> (Vec<u8>, Vec<u8>) {
        let payload: Vec<u8> = (0..bytes).map(|i| (i * 7 + slice as usize) as u8).collect();
        let message =
            Message { slice, bytes: bytes as u32, ..Message::new(Kind::Carried, GroupNumber::NONE, 2) };
        ([message.encode().to_vec(), payload.clone()].concat(), payload)
    }

    fn pair() -> (UnixStream, Socket) {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        theirs.set_nonblocking(true).expect("a socket may be nonblocking");
        (ours, Socket::Local(mio::net::UnixStream::from_std(theirs)))
    }

    #[test]
    fn messages_come_whole_however_they_are_cut() {
        let sizes = [0, 1, 47, 100, AHEAD_BYTES - 10, AHEAD_BYTES + 10, 3, 0, 50_000];
        let (frames, payloads): (Vec<_>, Vec<_>) =
            sizes.iter().enumerate().map(|(i, &bytes)| frame(i as u32, bytes)).unzip();
        let bytes = frames.concat();
        for cut in [1, 13, 48, 49, 4096, bytes.len()] {
            let (mut wire, socket) = pair();
            let (mut reader, mut desk) = (Reader::default(), Desk::default());
            for part in bytes.chunks(cut) {
                wire.write_all(part).expect("the socket has room");
                assert!(reader.read(&socket, &mut desk).expect("all is well-formed"), "cut to {cut}");
            }
            let expected: Vec<_> = (0..).zip(payloads.clone()).collect();
            assert_eq!(desk.taken, expected, "cut to {cut}");
        }
    }

    #[test]
    fn a_place_that_is_withdrawn_is_not_written_any_more() {
        let (mut wire, socket) = pair();
        let (mut reader, mut desk) = (Reader::default(), Desk::default());
        let (bytes, _) = frame(0, 1000);
        wire.write_all(&bytes[..500]).expect("the socket has room");
        reader.read(&socket, &mut desk).expect("well-formed so far");
        desk.withdrawn = true;
        let before = desk.place.clone();
        wire.write_all(&bytes[500..]).expect("the socket has room");
        reader.read(&socket, &mut desk).expect("well-formed");
        assert_eq!(desk.place, before);
        assert_eq!(desk.taken, [(0, b"unwanted".to_vec())]);
    }

    #[test]
    fn a_length_beyond_reason_takes_no_memory() {
        for (kind, bytes) in
            [(Kind::Carried, u32::MAX), (Kind::Carried, MAX_PIECE + 1), (Kind::Failed, MAX_TEXT + 1)]
        {
            let (mut wire, socket) = pair();
            let message = Message { bytes, ..Message::new(kind, GroupNumber::NONE, 2) };
            wire.write_all(&message.encode()).expect("the socket has room");
            let error = Reader::default().read(&socket, &mut Desk::default()).expect_err("too long");
            assert!(error.to_string().contains("claims to carry"), "{error}");
        }
    }
}
