//! One simulated process: a real member, what lies in its buffers, and the pulls that it serves.

use std::collections::BTreeMap;

use tweed_proto::objects::{Buffer, Fold, Member, ObjectId, Pull, Sink, Stream};
use tweed_schedule::Rank;

use super::content::Content;
use crate::clock::Time;

pub(crate) struct SimProcess {
    pub(crate) member: Member,
    /// The contents of what is held, and of the slots' sums.
    pub(crate) contents: BTreeMap<Buffer, Content>,
    /// What each stream into a slot has brought.
    pub(crate) arrived: BTreeMap<Stream, Content>,
    /// Pulls of this process: which ones are open, and what they bring.
    pub(crate) open: BTreeMap<Stream, Sink>,
    /// Whom each stream is pulled from.
    pub(crate) sources: BTreeMap<Stream, Rank>,
    /// Pulls of others, by who pulls.
    pub(crate) serves: BTreeMap<(Rank, Stream), Serve>,
    /// Payload bytes of each object that were taken in.
    pub(crate) taken: BTreeMap<ObjectId, u64>,
    pub(crate) busy_until: Time,
    pub(crate) died: Option<Time>,
}

/// A pull of another process.
pub(crate) struct Serve {
    pub(crate) pull: Pull,
    /// The most of its blocks that may be under way.
    pub(crate) window: u32,
    /// Up to here blocks have left.
    pub(crate) cursor: u64,
    /// So many blocks are under way.
    pub(crate) under_way: u32,
}

impl Serve {
    /// All has left and was taken in.
    pub(crate) fn is_over(&self) -> bool {
        self.under_way == 0 && self.cursor >= self.pull.end
    }
}

impl SimProcess {
    pub(crate) fn new(member: Member) -> SimProcess {
        let (contents, arrived, open) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let sources = BTreeMap::new();
        SimProcess {
            member,
            contents,
            arrived,
            open,
            sources,
            serves: BTreeMap::new(),
            taken: BTreeMap::new(),
            busy_until: 0,
            died: None,
        }
    }

    /// The next block of a pull that may leave: where it begins, and what is in it.
    pub(crate) fn next_block(&mut self, to: (Rank, Stream)) -> Option<(u64, Vec<(u64, u64)>)> {
        let serve = self.serves.get_mut(&to)?;
        let Pull { buffer, generation, end, block, .. } = serve.pull;
        let begin = serve.cursor;
        if begin >= end || serve.under_way >= serve.window {
            return None;
        }
        let next = end.min((begin / block + 1) * block);
        if self.member.readable(buffer, generation)? < next {
            return None;
        }
        (serve.cursor, serve.under_way) = (next, serve.under_way + 1);
        Some((begin, self.contents.get(&buffer).map_or_else(Vec::new, |content| content.read(begin..next))))
    }

    /// Writes what a stream brought. Of a slot's streams each has a place of its own.
    pub(crate) fn store(&mut self, stream: Stream, begin: u64, pieces: &[(u64, u64)]) {
        match self.open.get(&stream) {
            Some(Sink::Copy(object)) => {
                self.contents.entry(Buffer::Object(*object)).or_default().write(begin, pieces);
            }
            Some(Sink::Slot(..)) => self.arrived.entry(stream).or_default().write(begin, pieces),
            None => {}
        }
    }

    /// Sums a range; returns what came out.
    pub(crate) fn fold(&self, fold: &Fold) -> Vec<(u64, u64)> {
        let own = fold.own.and_then(|object| self.contents.get(&Buffer::Object(object)));
        let streams = fold.streams.iter().filter_map(|stream| self.arrived.get(stream));
        let parts: Vec<Vec<(u64, u64)>> =
            own.into_iter().chain(streams).map(|c| c.read(fold.range.clone())).collect();
        Content::sum(fold.range.clone(), &parts)
    }
}
