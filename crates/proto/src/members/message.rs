//! What members send each other, and what a witness stores: records whose lengths are looked at before memory is taken.

use super::{Acceptor, Ballot, Epoch, Member, Ranks, Record, Seat, Voters, Witness};
use super::{MOST_ADDRESS_BYTES, MOST_MEMBERS, MOST_MISSING, MOST_WITNESSES};

const MEMBER_BYTES: usize = 40;
const WITNESS_BYTES: usize = MEMBER_BYTES + 2 + MOST_ADDRESS_BYTES;
const MOST_EPOCH_BYTES: usize =
    64 + MOST_MEMBERS * MEMBER_BYTES + MOST_WITNESSES * WITNESS_BYTES + 4 * MOST_MISSING;
/// No message and no record is longer.
pub const MOST_BYTES: usize = 256 + 2 * MOST_EPOCH_BYTES;

/// A member is alive, and what it knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heartbeat {
    /// The incarnation of the sender.
    pub incarnation: u64,
    /// The number of its epoch.
    pub epoch: u64,
    /// The next step that it has not counted.
    pub step: u64,
    /// Whether the sender leaves.
    pub leaving: bool,
    /// The receiver was heard lately.
    pub hears_you: bool,
    /// The ranks of its epoch with which it is heard in both directions.
    pub mutual: Ranks,
}

/// A message. The link says which key it is from.
#[derive(Clone, Debug, PartialEq, Eq)]
// The fields are what their names are; `base` is the number of the epoch whose voters decide.
#[allow(missing_docs)]
pub enum Message {
    /// Between all members, and between them and witnesses.
    Heartbeat(Heartbeat),
    /// This process wants to be a member, or a witness.
    Join { member: Member, seat: Option<Seat> },
    /// It should not ask again for so many ticks.
    Later { incarnation: u64, ticks: u64 },
    /// Promise that no lower ballot is accepted any more.
    Prepare { base: u64, ballot: Ballot },
    /// It is promised; so much was accepted before.
    Promise { base: u64, ballot: Ballot, voter: Member, accepted: Option<(Ballot, Epoch)> },
    /// A higher ballot was promised.
    Refuse { base: u64, promised: Ballot },
    /// A proposer asks to accept this epoch.
    Accept { base: u64, ballot: Ballot, value: Epoch },
    /// A voter has accepted the proposal.
    Accepted { base: u64, ballot: Ballot, voter: Member },
    /// This epoch is decided.
    Decided(Epoch),
}

impl Message {
    /// The message as bytes, at most [`MOST_BYTES`].
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer(Vec::new());
        match self {
            Message::Heartbeat(heartbeat) => out.byte(1).heartbeat(heartbeat),
            Message::Join { member, seat } => out.byte(2).member(*member).seat(seat.as_ref()),
            Message::Later { incarnation, ticks } => out.byte(3).long(*incarnation).long(*ticks),
            Message::Prepare { base, ballot } => out.byte(4).long(*base).ballot(*ballot),
            Message::Promise { base, ballot, voter, accepted } => {
                out.byte(5).long(*base).ballot(*ballot).member(*voter).accepted(accepted.as_ref())
            }
            Message::Refuse { base, promised } => out.byte(6).long(*base).ballot(*promised),
            Message::Accept { base, ballot, value } => out.byte(7).long(*base).ballot(*ballot).epoch(value),
            Message::Accepted { base, ballot, voter } => {
                out.byte(8).long(*base).ballot(*ballot).member(*voter)
            }
            Message::Decided(epoch) => out.byte(9).epoch(epoch),
        };
        out.0
    }

    /// `None` for what no process of this version sends.
    pub fn decode(bytes: &[u8]) -> Option<Message> {
        let mut from = Reader(bytes);
        let message = match from.byte()? {
            1 => Message::Heartbeat(from.heartbeat()?),
            2 => Message::Join { member: from.member()?, seat: from.seat()? },
            3 => Message::Later { incarnation: from.long()?, ticks: from.long()? },
            4 => Message::Prepare { base: from.long()?, ballot: from.ballot()? },
            5 => {
                let (base, ballot, voter) = (from.long()?, from.ballot()?, from.member()?);
                Message::Promise { base, ballot, voter, accepted: from.accepted()? }
            }
            6 => Message::Refuse { base: from.long()?, promised: from.ballot()? },
            7 => Message::Accept { base: from.long()?, ballot: from.ballot()?, value: from.epoch()? },
            8 => Message::Accepted { base: from.long()?, ballot: from.ballot()?, voter: from.member()? },
            9 => Message::Decided(from.epoch()?),
            _ => return None,
        };
        from.0.is_empty().then_some(message)
    }
}

impl Record {
    /// The record as bytes, for a file.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer(Vec::new());
        out.member(self.me).byte(u8::from(self.epoch.is_some()));
        self.epoch.iter().for_each(|epoch| {
            out.epoch(epoch);
        });
        out.byte(u8::from(self.acceptor.promised.is_some()));
        self.acceptor.promised.iter().for_each(|&promised| {
            out.ballot(promised);
        });
        out.accepted(self.acceptor.accepted.as_ref());
        out.0
    }

    /// `None` for what is no record.
    pub fn decode(bytes: &[u8]) -> Option<Record> {
        let mut from = Reader(bytes);
        let me = from.member()?;
        let epoch = if from.flag()? { Some(from.epoch()?) } else { None };
        let promised = if from.flag()? { Some(from.ballot()?) } else { None };
        let accepted = from.accepted()?;
        from.0.is_empty().then_some(Record { me, epoch, acceptor: Acceptor { promised, accepted } })
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn byte(&mut self, value: u8) -> &mut Writer {
        self.0.push(value);
        self
    }

    fn short(&mut self, value: usize) -> &mut Writer {
        // What is longer is cut, and refused by its reader; no sound epoch is.
        self.0.extend((value as u16).to_le_bytes());
        self
    }

    fn long(&mut self, value: u64) -> &mut Writer {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn member(&mut self, member: Member) -> &mut Writer {
        self.0.extend(member.key);
        self.long(member.incarnation)
    }

    fn members(&mut self, members: &[Member]) -> &mut Writer {
        self.short(members.len());
        members.iter().for_each(|&member| {
            self.member(member);
        });
        self
    }

    fn address(&mut self, address: &str) -> &mut Writer {
        self.short(address.len()).0.extend(address.as_bytes());
        self
    }

    fn seat(&mut self, seat: Option<&Seat>) -> &mut Writer {
        let Some(Seat { of, address }) = seat else { return self.byte(0) };
        self.byte(1).0.extend(of);
        self.address(address)
    }

    fn witnesses(&mut self, witnesses: &[Witness]) -> &mut Writer {
        self.short(witnesses.len());
        witnesses.iter().for_each(|witness| {
            self.member(witness.member).address(&witness.address);
        });
        self
    }

    fn ballot(&mut self, ballot: Ballot) -> &mut Writer {
        self.long(ballot.round).member(ballot.by)
    }

    fn accepted(&mut self, accepted: Option<&(Ballot, Epoch)>) -> &mut Writer {
        match accepted {
            Some((ballot, epoch)) => self.byte(1).ballot(*ballot).epoch(epoch),
            None => self.byte(0),
        }
    }

    fn heartbeat(&mut self, heartbeat: &Heartbeat) -> &mut Writer {
        let flags = u8::from(heartbeat.leaving) | u8::from(heartbeat.hears_you) << 1;
        self.long(heartbeat.incarnation).long(heartbeat.epoch).long(heartbeat.step).byte(flags);
        self.short(heartbeat.mutual.words().len());
        heartbeat.mutual.words().iter().for_each(|&word| {
            self.long(word);
        });
        self
    }

    fn epoch(&mut self, epoch: &Epoch) -> &mut Writer {
        self.long(epoch.number).long(epoch.first_step).byte(u8::from(epoch.broken)).members(&epoch.members);
        match &epoch.voters {
            Voters::Members => self.byte(0),
            Voters::Witnesses(witnesses) => self.byte(1).witnesses(witnesses),
        };
        self.short(epoch.missing.len());
        epoch.missing.iter().for_each(|&(low, high)| {
            self.short(low.into()).short(high.into());
        });
        self
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    fn flag(&mut self) -> Option<bool> {
        self.byte().filter(|&byte| byte < 2).map(|byte| byte == 1)
    }

    fn short(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn long(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn member(&mut self) -> Option<Member> {
        Some(Member { key: self.array()?, incarnation: self.long()? })
    }

    /// A count of things that are so long, all of which have come.
    fn count(&mut self, most: usize, bytes: usize) -> Option<usize> {
        let count = usize::from(self.short()?);
        (count <= most && count * bytes <= self.0.len()).then_some(count)
    }

    fn members(&mut self, most: usize) -> Option<Vec<Member>> {
        let count = self.count(most, MEMBER_BYTES)?;
        (0..count).map(|_| self.member()).collect()
    }

    fn address(&mut self) -> Option<String> {
        let length = self.count(MOST_ADDRESS_BYTES, 1)?;
        let (address, rest) = self.0.split_at(length);
        self.0 = rest;
        String::from_utf8(address.to_vec()).ok()
    }

    fn seat(&mut self) -> Option<Option<Seat>> {
        if !self.flag()? {
            return Some(None);
        }
        Some(Some(Seat { of: self.array()?, address: self.address()? }))
    }

    fn witnesses(&mut self) -> Option<Vec<Witness>> {
        let count = self.count(MOST_WITNESSES, MEMBER_BYTES)?;
        (0..count).map(|_| Some(Witness { member: self.member()?, address: self.address()? })).collect()
    }

    fn ballot(&mut self) -> Option<Ballot> {
        Some(Ballot { round: self.long()?, by: self.member()? })
    }

    fn accepted(&mut self) -> Option<Option<(Ballot, Epoch)>> {
        if !self.flag()? {
            return Some(None);
        }
        Some(Some((self.ballot()?, self.epoch()?)))
    }

    fn heartbeat(&mut self) -> Option<Heartbeat> {
        let (incarnation, epoch, step) = (self.long()?, self.long()?, self.long()?);
        let flags = self.byte().filter(|&flags| flags < 4)?;
        let count = self.count(MOST_MEMBERS.div_ceil(64), 8)?;
        let words: Option<Vec<u64>> = (0..count).map(|_| self.long()).collect();
        let (leaving, hears_you) = (flags & 1 != 0, flags & 2 != 0);
        Some(Heartbeat { incarnation, epoch, step, leaving, hears_you, mutual: Ranks::from_words(words?) })
    }

    fn epoch(&mut self) -> Option<Epoch> {
        let (number, first_step, broken) = (self.long()?, self.long()?, self.flag()?);
        let members = self.members(MOST_MEMBERS)?;
        let voters = match self.flag()? {
            false => Voters::Members,
            true => Voters::Witnesses(self.witnesses()?),
        };
        let count = self.count(MOST_MISSING, 4)?;
        let missing: Option<Vec<(u16, u16)>> =
            (0..count).map(|_| Some((self.short()?, self.short()?))).collect();
        let epoch = Epoch { number, members, voters, missing: missing?, first_step, broken };
        epoch.is_sound().then_some(epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u8) -> Member {
        Member { key: [id; 32], incarnation: u64::from(id) }
    }

    fn all() -> Vec<Message> {
        let epoch = Epoch {
            number: 7,
            members: (0..4).map(member).collect(),
            voters: Voters::Witnesses(vec![Witness { member: member(9), address: "häuschen:7070".into() }]),
            missing: vec![(0, 1), (2, 3)],
            first_step: 1 << 40,
            broken: true,
        };
        let (base, ballot, voter) = (6, Ballot { round: 3, by: member(2) }, member(1));
        let mutual: Ranks = [0, 70].into_iter().collect();
        vec![
            Message::Heartbeat(Heartbeat {
                incarnation: 1,
                epoch: 2,
                step: 3,
                leaving: true,
                hears_you: false,
                mutual,
            }),
            Message::Join { member: voter, seat: None },
            Message::Join { member: voter, seat: Some(Seat { of: [8; 32], address: "[::1]:7070".into() }) },
            Message::Later { incarnation: 1, ticks: 2 },
            Message::Prepare { base, ballot },
            Message::Promise { base, ballot, voter, accepted: Some((ballot, epoch.clone())) },
            Message::Promise { base, ballot, voter, accepted: None },
            Message::Refuse { base, promised: ballot },
            Message::Accept { base, ballot, value: epoch.clone() },
            Message::Accepted { base, ballot, voter },
            Message::Decided(epoch),
        ]
    }

    #[test]
    fn messages_survive_the_wire_and_no_part_of_one_is_a_message() {
        for message in all() {
            let bytes = message.encode();
            assert_eq!(Message::decode(&bytes), Some(message));
            assert!((0..bytes.len()).all(|end| Message::decode(&bytes[..end]).is_none()));
            assert_eq!(Message::decode(&[bytes, vec![0]].concat()), None);
        }
    }

    #[test]
    fn the_longest_message_is_within_the_bound() {
        let id = |number: usize| {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&number.to_le_bytes());
            Member { key, incarnation: 0 }
        };
        let witness = |number| Witness { member: id(number), address: "x".repeat(MOST_ADDRESS_BYTES) };
        let pairs = (0..MOST_MEMBERS as u16)
            .flat_map(|low| (low + 1..MOST_MEMBERS as u16).map(move |high| (low, high)));
        let epoch = Epoch {
            members: (0..MOST_MEMBERS).map(id).collect(),
            voters: Voters::Witnesses((0..MOST_WITNESSES).map(witness).collect()),
            missing: pairs.take(MOST_MISSING).collect(),
            ..Epoch::first(Vec::new(), Voters::Members)
        };
        let ballot = Ballot { round: 0, by: id(0) };
        let accepted = Some((ballot, epoch.clone()));
        let record =
            Record { me: id(0), epoch: Some(epoch), acceptor: Acceptor { promised: Some(ballot), accepted } };
        let bytes = record.encode();
        assert!(bytes.len() <= MOST_BYTES);
        assert_eq!(Record::decode(&bytes), Some(record));
    }

    #[test]
    fn a_count_that_nothing_follows_takes_no_memory() {
        let mut bytes = Message::Decided(Epoch::first(vec![member(0)], Voters::Members)).encode();
        bytes[17..19].copy_from_slice(&u16::MAX.to_le_bytes());
        assert_eq!(Message::decode(&bytes), None);
    }
}
