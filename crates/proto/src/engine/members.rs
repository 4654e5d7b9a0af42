//! Who takes part in a group, and into what pieces its buffers are cut.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tweed_schedule::{Collective, Draft as ScheduleDraft, Rank, Schedule, Send};

use super::config::GroupConfig;
use super::group_number::GroupNumber;
use crate::layout::Reach;
use crate::program::Program;

/// A schedule and this rank's part of it.
pub type Plan = (Arc<Schedule>, Arc<Program>);

/// In place of a peer's number: this rank itself.
pub const SELF: usize = usize::MAX;

/// Into what pieces buffers are cut. All ranks of a group must hold the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// The bytes of a piece of a chunk, unless there are many chunks.
    pub piece_bytes: u64,
    /// So many slices are under way at once.
    pub window: u32,
    /// A chunk has so many pieces, if none of them has to be shorter than 64 KiB for that.
    pub pieces: u64,
}

impl Tuning {
    const LEAST_PIECE: u64 = 64 << 10;
    /// Pieces shrink when those of all chunks together have more bytes than this.
    const SLICE_BYTES: u64 = 4 << 20;

    /// For peers that share memory: what is staged stays in the cache. Found by trial on two cores: larger pieces
    /// were slower at 4 ranks; windows of 2, 3 and 4 made no difference beyond the noise.
    pub const SHARED: Tuning = Tuning { piece_bytes: 256 << 10, window: 2, pieces: 1 };
    /// For wires: enough under way to fill a long link, and of a short chunk a part goes on while the rest comes. A step of
    /// DDP with 0.87 MB by four ranks at 100 Mbit/s and bbr took 201 ms where a chunk was one piece, and 131 ms so.
    pub const WIRE: Tuning = Tuning { piece_bytes: 256 << 10, window: 16, pieces: 4 };
    /// For packets: each piece is a message, so that it is summed and answered while those behind it are on their
    /// way; as many bytes under way as on a wire. Between eight workers and a server an exchange of 0.8 MB took 2.26 s
    /// over links of 10 and 50 Mbit/s where a chunk was one message, 1.55 s in pieces of 256 KiB, 1.30 s in these.
    pub const PACKETS: Tuning = Tuning { piece_bytes: 64 << 10, window: 64, pieces: 1 };

    /// Bytes of a piece and slices under way, for a buffer of `bytes` in `chunks` chunks. Pieces have at most `short` bytes,
    /// where that is given, and as many bytes are under way. Of each chunk at most `in_flight` bytes are, where that is
    /// given, but at least two pieces.
    pub(crate) fn cut(
        self,
        chunks: u32,
        bytes: u64,
        short: Option<u64>,
        in_flight: Option<u64>,
    ) -> (u64, u32) {
        let chunks = u64::from(chunks.max(1));
        let most = (Self::SLICE_BYTES / chunks).min(bytes / (chunks * self.pieces)).max(Self::LEAST_PIECE);
        let long = self.piece_bytes.min(most).next_multiple_of(64);
        let piece = short.map_or(long, |short| long.min((short / 64).max(1) * 64));
        let window = u64::from(self.window) * (long / piece);
        let Some(in_flight) = in_flight else { return (piece, window as u32) };
        let piece = piece.min((in_flight / 4).max(Self::LEAST_PIECE) / 64 * 64);
        (piece, window.min((in_flight / piece).max(2)) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::Tuning;

    #[test]
    fn no_more_is_under_way_than_may_be_in_flight() {
        let cut = |in_flight| Tuning::WIRE.cut(1, 25_000_000, None, in_flight);
        assert_eq!([cut(None), cut(Some(u64::MAX))], [(256 << 10, 16); 2]);
        assert_eq!([cut(Some(512 << 10)), cut(Some(2 << 20))], [(128 << 10, 4), (256 << 10, 8)]);
        assert_eq!([586_788, 961_788].map(|bytes| cut(Some(bytes)).1), [4, 4]);
        assert_eq!(cut(Some(1)), (64 << 10, 2), "one leaves while one comes");
        assert_eq!(Tuning::SHARED.cut(1, 25_000_000, None, Some(4 << 20)).1, 2);
    }

    #[test]
    fn of_short_pieces_as_many_bytes_are_under_way() {
        let cut = |short| Tuning::WIRE.cut(1, 25_000_000, Some(short), None);
        assert_eq!([cut(8 << 10), cut(1 << 20), cut(1)], [(8 << 10, 512), (256 << 10, 16), (64, 65_536)]);
        assert_eq!(Tuning::WIRE.cut(1, 25_000_000, Some(8 << 10), Some(64 << 10)), (8 << 10, 8));
    }
}

/// Who takes part, seen from one rank.
#[derive(Debug)]
pub struct Members {
    /// The number of the group: the same at all ranks, and of no other group.
    pub number: GroupNumber,
    /// Whose group it is, where members come and go; else `None`.
    pub epoch: Option<u64>,
    /// The group's name, for people.
    pub name: String,
    /// This process's rank in the group.
    pub rank: Rank,
    /// The process behind each rank; [`SELF`] for this one.
    pub peers: Vec<usize>,
    /// How each rank is reached.
    pub reach: Vec<Reach>,
    /// Some two ranks share no memory.
    pub has_wires: bool,
    /// How buffers are cut.
    pub tuning: Tuning,
    /// How long an operation may take unless it says otherwise.
    pub timeout: Duration,
    /// What all ranks have agreed on.
    pub config: GroupConfig,
    /// The endpoint by which values cross wires in datagrams; `None`: streams.
    pub endpoint: Option<u64>,
}

impl Members {
    /// How many ranks there are.
    pub fn ranks(&self) -> u32 {
        self.peers.len() as u32
    }

    /// The rank of a process, if it takes part.
    pub fn rank_of(&self, peer: usize) -> Option<Rank> {
        self.peers.iter().position(|&p| p == peer).map(|r| r as Rank)
    }

    /// The processes behind the other ranks.
    pub fn others(&self) -> impl Iterator<Item = usize> + '_ {
        self.peers.iter().copied().filter(|&p| p != SELF)
    }

    /// What values go by to ranks that share no memory with this one.
    pub fn wire(&self) -> &'static str {
        match self.config.ltp {
            Some(_) => "ltp",
            None => "tcp",
        }
    }

    /// One value from one rank to another; `side` 0 sends, 1 receives.
    pub fn single_send(&self, side: Rank) -> Plan {
        static SCHEDULE: OnceLock<[Plan; 2]> = OnceLock::new();
        let plans = SCHEDULE.get_or_init(|| {
            let sends = vec![Send::new(0, 0, 1, 0, false)];
            let (name, collective) = ("send".into(), Collective::Broadcast);
            let draft =
                ScheduleDraft { name, collective, root: 0, ranks: 2, chunks: 1, sends, topology: None };
            let schedule = Arc::new(Schedule::new(draft).expect("a single send is a broadcast of two"));
            [0, 1].map(|side| (Arc::clone(&schedule), Arc::new(Program::compile(&schedule, side))))
        });
        plans[side as usize].clone()
    }
}
