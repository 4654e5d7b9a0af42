//! Reads the text form of a trace: see `text`.

use std::str::{FromStr, Lines, SplitWhitespace};
use std::sync::Arc;

use tweed_schedule::{Draft, Link, Schedule, Send, Topology};

use super::text::VERSION;
use super::{Entry, Event, Trace, TraceError};
use crate::executor::{Action, Arrival, Combine, Notice, Ready, Signal};
use crate::layout::{Layout, Reach};
use crate::program::Program;

impl FromStr for Trace {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<Trace, TraceError> {
        let mut reader = Reader { lines: text.lines(), line: 0, words: "".split_whitespace() };
        reader.version()?;
        let schedule = reader.schedule()?;
        let rank = reader.number("a rank")?;
        if rank >= schedule.ranks() {
            return Err(reader.expected("a rank of the schedule"));
        }
        let layout = reader.layout(&schedule, rank)?;
        let mut entries = Vec::new();
        while reader.next_line() {
            entries.push(reader.entry()?);
        }
        Ok(Trace { schedule, rank, layout, entries })
    }
}

/// Reads line by line, word by word.
struct Reader<'a> {
    lines: Lines<'a>,
    line: usize,
    words: SplitWhitespace<'a>,
}

impl<'a> Reader<'a> {
    fn version(&mut self) -> Result<(), TraceError> {
        let first = self.lines.next().unwrap_or_default();
        self.line = 1;
        if first == format!("tweed trace {VERSION}") {
            return Ok(());
        }
        Err(TraceError::Version { found: first.chars().take(40).collect() })
    }

    fn schedule(&mut self) -> Result<Schedule, TraceError> {
        self.line_of("name", "a line 'name ...'")?;
        let name = std::mem::replace(&mut self.words, "".split_whitespace());
        let name = name.collect::<Vec<_>>().join(" ");
        self.line_of("schedule", "a line 'schedule ...'")?;
        let collective = self.word("a collective")?.parse()?;
        let (root, ranks) = (self.number("a root")?, self.number("a number of ranks")?);
        let chunks = self.number("a number of chunks")?;
        let digest = self.word("a digest")?;
        let recorded = u64::from_str_radix(digest, 16).map_err(|_| self.expected("a digest"))?;
        let sends = self.sends()?;
        let topology = links_of(&sends, ranks);
        let schedule = Schedule::new(Draft { name, collective, root, ranks, chunks, sends, topology })?;
        match schedule.digest() {
            held if held == recorded => Ok(schedule),
            held => Err(TraceError::Digest { recorded, held }),
        }
    }

    /// All sends; ends after the first word of the line `rank`.
    fn sends(&mut self) -> Result<Vec<Send>, TraceError> {
        let mut sends = Vec::new();
        while self.next_line() {
            match self.words.next() {
                Some("send") => sends.push(self.send()?),
                Some("rank") => return Ok(sends),
                _ => break,
            }
        }
        Err(self.expected("a line 'send ...' or 'rank ...'"))
    }

    fn send(&mut self) -> Result<Send, TraceError> {
        let (step, src) = (self.number("a step")?, self.number("a source")?);
        let (dst, chunk) = (self.number("a destination")?, self.number("a chunk")?);
        let reduce = self.either("+", "=", "'+' or '='")?;
        let (route, after) = (self.list("a route")?, self.list("sends to wait for")?);
        Ok(Send { step, src, dst, chunk, reduce, route: route.into(), after: after.into() })
    }

    fn layout(&mut self, schedule: &Schedule, rank: u32) -> Result<Layout, TraceError> {
        self.line_of("layout", "a line 'layout ...'")?;
        let (piece, window) = (self.number("bytes of a piece")?, self.number("a window")?);
        let in_place = self.either("in_place", "staged", "'in_place' or 'staged'")?;
        let reach = self.word("how each rank is reached")?;
        let reach = reach.chars().map(|c| if c == 's' { Reach::Shared } else { Reach::Wire });
        let reach: Vec<Reach> = reach.collect();
        self.line_of("bytes", "a line 'bytes ...'")?;
        let chunk_bytes: Vec<u64> = self.list("bytes of each chunk")?;
        let lengths = (schedule.ranks() as usize, schedule.chunks() as usize);
        let allowed = !in_place || Program::compile(schedule, rank).allows_in_place();
        if piece == 0 || window == 0 || !allowed || (reach.len(), chunk_bytes.len()) != lengths {
            return Err(self.expected("a layout that fits the schedule"));
        }
        Ok(Layout { chunk_bytes, piece, window, in_place, reach })
    }

    fn entry(&mut self) -> Result<Entry, TraceError> {
        let kind = (self.word("'<' or '>'")?, self.word("what happened")?);
        Ok(match kind {
            ("<", "ready") => Entry::In(self.ready()?),
            ("<", "read") => {
                Entry::In(Event::Read { slice: self.number("a slice")?, send: self.number("a send")? })
            }
            ("<", "gone") => Entry::In(Event::Gone(self.number("a rank")?)),
            ("<", "finished") => Entry::In(Event::Finished(self.number("an action")?)),
            (">", "signal") => Entry::Out(Action::Signal(self.signal()?)),
            (">", "combine") => Entry::Out(Action::Combine(self.combine()?)),
            (">", "stage") => Entry::Out(Action::Stage {
                output: self.number("an output")?,
                slice: self.number("a slice")?,
            }),
            (">", "transmit") => {
                let (send, to) = (self.number("a send")?, self.number("a rank")?);
                let (output, slice) = (self.number("an output")?, self.number("a slice")?);
                Entry::Out(Action::Transmit { send, to, output, slice })
            }
            _ => return Err(self.expected("an event or an action")),
        })
    }

    fn ready(&mut self) -> Result<Event, TraceError> {
        let (slice, send) = (self.number("a slice")?, self.number("a send")?);
        let ready = match self.word("what can be read")? {
            "placed" => Ready::Placed,
            word => {
                Ready::Readable(Arrival { writable: self.is_writable(word)?, at: self.number("a place")? })
            }
        };
        Ok(Event::Ready { slice, send, ready })
    }

    fn signal(&mut self) -> Result<Signal, TraceError> {
        let (to, send) = (self.number("a rank")?, self.number("a send")?);
        let slice = self.number("a slice")?;
        let what = match self.word("a notice")? {
            "placed" => Notice::Placed,
            "read" => Notice::Read,
            word => Notice::Readable { writable: self.is_writable(word)?, output: self.number("an output")? },
        };
        Ok(Signal { to, send, slice, what })
    }

    fn combine(&mut self) -> Result<Combine, TraceError> {
        let (input, slice) = (self.number("an input")?, self.number("a slice")?);
        let stage = self.list("an output to stage")?.first().copied();
        let puts: Vec<u32> = self.list("answers in place")?;
        if puts.len() % 2 == 1 {
            return Err(self.expected("pairs of position and send"));
        }
        let puts = puts.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        Ok(Combine { input, slice, stage, puts })
    }

    fn is_writable(&self, word: &str) -> Result<bool, TraceError> {
        match word {
            "writable" => Ok(true),
            "readable" => Ok(false),
            _ => Err(self.expected("'readable', 'writable' or 'placed'")),
        }
    }

    /// Goes to the next line that is not empty; false at the end.
    fn next_line(&mut self) -> bool {
        for line in self.lines.by_ref() {
            self.line += 1;
            if !line.trim().is_empty() {
                self.words = line.split_whitespace();
                return true;
            }
        }
        false
    }

    fn line_of(&mut self, first: &str, expected: &'static str) -> Result<(), TraceError> {
        let found = self.next_line() && self.words.next() == Some(first);
        found.then_some(()).ok_or_else(|| self.expected(expected))
    }

    fn word(&mut self, expected: &'static str) -> Result<&'a str, TraceError> {
        self.words.next().ok_or_else(|| self.expected(expected))
    }

    fn either(&mut self, yes: &str, no: &str, expected: &'static str) -> Result<bool, TraceError> {
        match self.word(expected)? {
            word if word == yes => Ok(true),
            word if word == no => Ok(false),
            _ => Err(self.expected(expected)),
        }
    }

    fn number<T: FromStr>(&mut self, expected: &'static str) -> Result<T, TraceError> {
        let word = self.word(expected)?;
        word.parse().map_err(|_| self.expected(expected))
    }

    fn list<T: FromStr>(&mut self, expected: &'static str) -> Result<Vec<T>, TraceError> {
        match self.word(expected)? {
            "-" => Ok(Vec::new()),
            word => {
                let items: Result<_, _> = word.split(',').map(T::from_str).collect();
                items.map_err(|_| self.expected(expected))
            }
        }
    }

    fn expected(&self, expected: &'static str) -> TraceError {
        TraceError::Line { line: self.line, expected }
    }
}

/// The links that routes use: metrics do not matter to a replay, only that the links are there.
fn links_of(sends: &[Send], ranks: u32) -> Option<Arc<Topology>> {
    let routed = sends.iter().any(|s| !s.route.is_empty());
    let link = Link::new(0, std::time::Duration::ZERO);
    let hops = sends.iter().flat_map(Send::hops).map(|hop| (hop, link));
    routed.then(|| Arc::new(Topology::from_links(ranks, hops)))
}
