//! Groups, and how their operations begin.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tweed_schedule::{Collective, Rank};

use super::delivery::{Deliveries, Delivery};
use super::error::EngineError;
use super::flow::Flow;
use super::group_number::GroupNumber;
use super::host::{Host, Payload, Time};
use super::members::{Members, SELF};
use super::message::{Kind, Message};
use super::metrics::{Punctuality, UnderWay};
use super::p2p::Numbers;
use super::request::{Operation, Request, Segment};
use super::{ActiveOp, Draft, Engine, Key, Start};
use crate::late::History;

/// What the engine knows of a group.
pub(super) struct GroupState {
    pub(super) members: Arc<Members>,
    pub(super) next_op: u64,
    pub(super) numbers: Numbers,
    pub(super) flow: Flow,
    pub(super) history: History,
    pub(super) punctuality: BTreeMap<Rank, Punctuality>,
    pub(super) under_way: UnderWay,
    /// At rank 0: the latest that each rank has left here.
    pub(super) notes: BTreeMap<Rank, Vec<u8>>,
    /// How operations were delivered, until somebody asks.
    pub(super) deliveries: Deliveries,
    /// Memory of which no contribution may lose a part: length by address.
    pub(super) whole: BTreeMap<u64, u64>,
    /// Memory from and to which an all-to-all carries contributions: length by address.
    packets: BTreeMap<u64, u64>,
    /// How urgent operations from or to memory are: length and urgency by address.
    urgent: BTreeMap<u64, (u64, i32)>,
    /// How many operations of each signature have ended in this epoch of the packets.
    pub(super) of_a_kind: BTreeMap<u32, u32>,
    /// The operation that ended last.
    pub(super) last_end: Option<(&'static str, Time)>,
    /// Members that have left it.
    pub(super) left: BTreeSet<Rank>,
    /// Why a call failed elsewhere that this rank has not come to, or that ended well here.
    pub(super) verdict: Option<EngineError>,
    /// Why it cannot be used any more.
    pub(super) broken: Option<EngineError>,
}

impl GroupState {
    fn new(members: Arc<Members>, ahead_bytes: u64) -> GroupState {
        GroupState {
            members,
            next_op: 0,
            numbers: Numbers::default(),
            flow: Flow::new(ahead_bytes),
            history: History::default(),
            punctuality: BTreeMap::new(),
            under_way: UnderWay::default(),
            notes: BTreeMap::new(),
            deliveries: Deliveries::default(),
            whole: BTreeMap::new(),
            packets: BTreeMap::new(),
            urgent: BTreeMap::new(),
            of_a_kind: BTreeMap::new(),
            last_end: None,
            left: BTreeSet::new(),
            verdict: None,
            broken: None,
        }
    }

    /// The greatest urgency of the memory that a call reads or writes; what the call says where none was named.
    fn urgency(&self, request: &Request) -> i32 {
        let touched = |(&at, &(length, _)): &(&u64, &(u64, i32))| {
            let overlaps = |s: &Segment| s.data.0 < at + length && at < s.data.0 + s.bytes;
            request.inputs.iter().chain(&request.outputs).any(overlaps)
        };
        let named = self.urgent.iter().filter(touched).map(|(_, &(_, urgency))| urgency);
        named.max().unwrap_or(request.urgency)
    }

    /// An all-to-all all of whose memory was named by [`Engine::may_lose`].
    fn carries_contributions(&self, request: &Request) -> bool {
        let named = |s: &Segment| {
            let before = self.packets.range(..=s.data.0).next_back();
            s.bytes == 0 || before.is_some_and(|(&at, &length)| s.data.0 + s.bytes <= at + length)
        };
        let all_to_all =
            matches!(request.operation, Operation::Collective { what: Collective::AllToAll, .. });
        all_to_all && request.inputs.iter().chain(&request.outputs).all(named)
    }
}

impl<H: Host> Engine<H> {
    /// Opens a group whose members are peers by now.
    pub fn open_group(&mut self, members: Arc<Members>) -> Result<(), EngineError> {
        let (number, name) = (members.number, members.name.clone());
        if self.groups.contains_key(&number) {
            let text = format!("there is a group {name:?} with this number already; make the group anew");
            return Err(EngineError::Usage(text));
        }
        let lost = members.others().find(|&peer| self.peers.is_lost(peer));
        self.groups.insert(number, GroupState::new(members, self.settings.ahead_bytes));
        lost.into_iter().for_each(|peer| self.break_group(number, peer));
        for (peer, message, received) in self.early.take(number, None) {
            self.handle(peer, message, received);
        }
        Ok(())
    }

    /// Closes it: what is under way ends as aborted.
    pub fn close_group(&mut self, number: GroupNumber) {
        self.send_reason(number);
        let reason = EngineError::Aborted("the group was closed while the operation ran".into());
        self.fail_unfinished(number, &reason);
        self.leaving.extend(self.groups.remove(&number).map(|group| group.members));
        self.closed.insert(number);
        self.early.drop_group(number);
        for peer in (0..self.peers.len()).filter(|&peer| self.peers.is_lost(peer)).collect::<Vec<_>>() {
            self.unmap(peer);
        }
    }

    /// Memory of this rank loses no parts in any contribution to the group from now on; of 0 bytes: it may again.
    pub fn keep_whole(&mut self, group: GroupNumber, address: u64, bytes: u64) {
        let Some(group) = self.groups.get_mut(&group) else { return };
        match bytes {
            0 => group.whole.remove(&address),
            _ => group.whole.insert(address, bytes),
        };
    }

    /// An all-to-all from and to such memory alone carries contributions: it may lose parts of them, and says which. All
    /// ranks name theirs alike. Of 0 bytes: it is ordinary memory again.
    pub fn may_lose(&mut self, group: GroupNumber, address: u64, bytes: u64) {
        let Some(group) = self.groups.get_mut(&group) else { return };
        match bytes {
            0 => group.packets.remove(&address),
            _ => group.packets.insert(address, bytes),
        };
    }

    /// Calls from or to memory of this rank are so urgent from now on; 0: as all others. Other ranks need not name theirs.
    pub fn set_urgency(&mut self, group: GroupNumber, address: u64, bytes: u64, urgency: i32) {
        let Some(group) = self.groups.get_mut(&group) else { return };
        match urgency {
            0 => group.urgent.remove(&address),
            _ => group.urgent.insert(address, (bytes, urgency)),
        };
    }

    /// How operations of a group were delivered since the last call.
    pub fn take_deliveries(&mut self, group: GroupNumber) -> Vec<Delivery> {
        self.groups.get_mut(&group).map(|group| group.deliveries.take()).unwrap_or_default()
    }

    /// Writes down how operations went that no peer has acknowledged in full; the process ends.
    pub fn save_traces(&mut self) {
        let (active, host) = (&self.active, &mut self.host);
        active.iter().for_each(|active| active.save_trace(host));
    }

    pub(super) fn admit(&mut self, draft: Draft<H::Call>) {
        let number = draft.group.number;
        let Some(group) = self.groups.get_mut(&number) else {
            let (label, name) = (draft.label(), &draft.group.name);
            let why = format!("{label}: the group {name:?} has been closed; make it anew");
            return self.end(draft.call, Err(EngineError::Aborted(why)));
        };
        if let Some(error) = group.broken.clone() {
            return self.refuse(draft, &error);
        }
        if draft.plan.is_none() {
            self.open.push(draft);
            return self.answer_open();
        }
        let key = match group.numbers.take(&draft) {
            Some(key) => key,
            None => {
                group.next_op += 1;
                Key { group: number, op: group.next_op - 1, peer: None }
            }
        };
        self.begin(draft, key);
    }

    /// The group is broken. Others may wait for this rank in the very call, and not know.
    fn refuse(&mut self, draft: Draft<H::Call>, error: &EngineError) {
        let error = error.clone().about(&draft.label());
        let group = self.groups.get_mut(&draft.group.number).expect("it was just seen to be broken");
        match group.numbers.take(&draft) {
            Some(key) => self.send_failed(&draft.group, key, &error),
            None if draft.plan.is_some() => {
                let key = Key { group: draft.group.number, op: group.next_op, peer: None };
                group.next_op += 1;
                self.send_failed(&draft.group, key, &error);
            }
            None => {}
        }
        self.end(draft.call, Err(error));
    }

    /// Tells those who take part in an operation that it has failed here.
    pub(super) fn send_failed(&mut self, group: &Members, key: Key, error: &EngineError) {
        let message = Message { send: error.code(), ..Message::new(Kind::Failed, key.group, key.op) };
        let peers: Vec<usize> = match key.peer {
            Some(rank) => vec![group.peers[rank as usize]],
            None => group.others().collect(),
        };
        for peer in peers.into_iter().filter(|&peer| peer != SELF) {
            self.peers.send_text(peer, &message, error.to_string().into_bytes(), &mut self.host);
        }
    }

    fn begin(&mut self, mut draft: Draft<H::Call>, key: Key) {
        self.next_run += 1;
        let group = self.groups.get(&key.group);
        draft.request.urgency = group.map_or(draft.request.urgency, |g| g.urgency(&draft.request));
        let contributes = group.is_some_and(|g| g.carries_contributions(&draft.request));
        let (run, recorded) = (self.next_run, self.settings.records);
        let start = Start { key, run, late: self.watch(&draft), recorded, contributes };
        let mut active = match ActiveOp::start(draft, start, &mut self.leases, &mut self.host) {
            Ok(active) => active,
            Err(draft) => return self.refuse_for_room(*draft, key),
        };
        let group = Arc::clone(&active.group);
        self.show_begun(&active);
        let left = self.groups.get(&key.group).map(|g| g.left.clone()).unwrap_or_default();
        left.into_iter().for_each(|rank| active.forgo(group.peers[rank as usize]));
        let place = self.active.partition_point(|a| a.request.urgency >= active.request.urgency);
        self.active.insert(place, active);
        self.groups.entry(key.group).and_modify(|group| group.under_way.begin(self.clock));
        for (peer, message, received) in self.early.take(key.group, Some(key)) {
            self.handle(peer, message, received);
        }
        if let Some(active) = self.active.iter_mut().find(|a| a.key == key) {
            active.came_last = active.waits_for().is_empty();
        }
        if let Some(peer) = group.others().find(|&peer| self.peers.is_lost(peer)) {
            self.fail_for_lost(peer);
        }
        self.fail_for_left(key.group);
    }

    /// The other ranks wait for this one in the operation, and it has no number to give back: the group ends.
    fn refuse_for_room(&mut self, draft: Draft<H::Call>, key: Key) {
        let label = draft.label();
        let advice = "use smaller buckets, fewer calls at a time, or free `tweed.empty` tensors";
        let error = EngineError::Usage(format!("{label}: no room left in shared memory; {advice}"));
        self.send_failed(&draft.group, key, &error);
        self.end(draft.call, Err(error.clone()));
        if key.peer.is_none() {
            self.fail_group(key.group, &error);
        }
    }

    /// Lets senders know that this rank has come so far, where they could be waiting for it.
    fn show_begun(&mut self, active: &ActiveOp<H::Call>) {
        let group = self.groups.get_mut(&active.key.group);
        let Some(group) = group.filter(|g| g.members.has_wires) else { return };
        for (peer, bytes) in active.expected_from_wires() {
            let ahead = self.early.holds_of(peer);
            for op in group.flow.begin(peer, active.key.op, bytes, ahead) {
                let message = Message::new(Kind::Begun, active.key.group, op);
                let urgency = Some(active.request.urgency);
                self.peers.send_by_urgency(peer, &message, Payload::Nothing, urgency, &mut self.host);
            }
        }
    }

    /// Receives from anybody: looks whether somebody has sent.
    pub(super) fn answer_open(&mut self) {
        let mut index = 0;
        while index < self.open.len() {
            let draft = &self.open[index];
            let group = self.groups.get_mut(&draft.group.number);
            let found = group.and_then(|group| group.numbers.find_sender(draft, self.early.keys()));
            match found {
                Some(key) => {
                    let mut draft = self.open.remove(index);
                    draft.plan = Some(draft.group.single_send(1));
                    self.begin(draft, key);
                }
                None => index += 1,
            }
        }
    }
}
