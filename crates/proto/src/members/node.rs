//! One process: member, witness or on its way in. What happens goes in by `handle_*`, what is to be done comes out of `poll`.

mod review;
mod voting;

use std::collections::VecDeque;

use tweed_rng::{mix, Rng};

use super::{
    Acceptor, Epoch, Heartbeat, Joins, Member, Message, Proposer, Seat, Settings, Standing, View, Voters,
    MOST_MEMBERS,
};
use crate::hub::Key;

/// No process is told to wait longer before it asks again, in ticks.
const LONGEST_WAIT: u64 = 1 << 20;

/// What its driver is to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a message, which may get lost, come twice or out of order.
    Send {
        /// The process that it goes to.
        to: Key,
        /// The message that is sent.
        message: Message,
    },
    /// What follows may be done only when this is stored for good. Only witnesses ask for it.
    Store(Record),
    /// This is the last epoch from now on; numbers may have been left out.
    Entered(Epoch),
}

/// What a witness must not forget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The member that it is of.
    pub me: Member,
    /// The last one it knows, from the first on that names it; None: none has, so its file can be of any run.
    pub epoch: Option<Epoch>,
    /// What it promised about the next.
    pub acceptor: Acceptor,
}

/// A process among the members; the theory of operation in [`members`](super) describes it.
#[derive(Clone, Debug)]
pub struct Node {
    me: Member,
    /// The seat that it wants as a witness; `None`: it is a member, or wants to be one.
    seat: Option<Seat>,
    settings: Settings,
    /// Whom a process asks that is not in, or that hears of nobody.
    contacts: Vec<Key>,
    epoch: Option<Epoch>,
    acceptor: Acceptor,
    proposer: Proposer,
    view: View,
    joins: Joins,
    now: u64,
    step: u64,
    was_in: bool,
    leaving: bool,
    heartbeat_at: u64,
    ask_at: u64,
    /// Since when there has been reason for another epoch, by reason.
    since: [Option<u64>; 4],
    ballot_began: u64,
    pause_until: u64,
    outdone: u32,
    standing: Standing,
    actions: VecDeque<Action>,
    rng: Rng,
}

impl Node {
    /// One of the members that hold `epoch` from the start.
    pub fn founder(me: Member, epoch: Epoch, settings: Settings) -> Node {
        let mut node = Node::new(me, None, settings);
        node.adopt(epoch);
        node
    }

    /// A process that wants to join; it asks those of `contacts`.
    pub fn joiner(me: Member, contacts: Vec<Key>, settings: Settings) -> Node {
        Node { contacts: others(contacts, me), ..Node::new(me, None, settings) }
    }

    /// A witness. It asks `contacts` for its seat, unless `epoch` names it. Which life it is has to be stored before it says so.
    pub fn witness(
        me: Member,
        epoch: Option<Epoch>,
        seat: Seat,
        contacts: Vec<Key>,
        settings: Settings,
    ) -> Node {
        let mut node = Node { contacts: others(contacts, me), ..Node::new(me, Some(seat), settings) };
        node.store();
        epoch.into_iter().for_each(|epoch| node.adopt(epoch));
        node
    }

    /// A witness that goes on from what it has stored. If that has an epoch, which does not name it, it has been replaced.
    pub fn restored(record: Record, seat: Seat, contacts: Vec<Key>, settings: Settings) -> Node {
        let was_in = record.epoch.is_some();
        let mut node = Node::witness(record.me, record.epoch, seat, contacts, settings);
        (node.acceptor, node.was_in) = (record.acceptor, was_in);
        node.standing = if node.is_in() { Standing::Settled } else { node.standing_outside() };
        node.actions.clear();
        node
    }

    fn new(me: Member, seat: Option<Seat>, settings: Settings) -> Node {
        let own = me.key.iter().fold(me.incarnation, |sum, &byte| mix(sum ^ u64::from(byte)));
        Node {
            me,
            seat,
            contacts: Vec::new(),
            epoch: None,
            acceptor: Acceptor::default(),
            proposer: Proposer::new(me),
            view: View::new(settings.silence),
            joins: Joins::default(),
            now: 1,
            step: 0,
            was_in: false,
            leaving: false,
            heartbeat_at: 0,
            ask_at: 0,
            since: [None; 4],
            ballot_began: 0,
            pause_until: 0,
            outdone: 0,
            standing: Standing::Joining,
            actions: VecDeque::new(),
            rng: Rng::new(settings.seed ^ own),
            settings,
        }
    }

    /// The member that this process is.
    pub fn me(&self) -> Member {
        self.me
    }

    /// The last epoch that it knows.
    pub fn epoch(&self) -> Option<&Epoch> {
        self.epoch.as_ref()
    }

    /// Where it stands, as of the last tick.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// What is to be done next.
    #[must_use]
    pub fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Another tick has passed.
    pub fn handle_tick(&mut self) {
        self.now += 1;
        if !self.is_in() {
            self.standing = self.standing_outside();
            if self.standing == Standing::Joining && self.now >= self.ask_at {
                self.ask_to_join();
            }
            return;
        }
        if self.now >= self.heartbeat_at {
            self.heartbeat_at = self.now + self.settings.heartbeat;
            let mut to = self.peers();
            let is_first = !self.is_witness() && self.first_proposer().is_none();
            if is_first || matches!(self.standing, Standing::Waiting(_)) {
                // Of a split one side may know nobody any more who lives and has gone on: each looks for the other.
                to.extend(self.contacts.iter().copied().filter(|key| !to.contains(key)).collect::<Vec<_>>());
            }
            to.into_iter().for_each(|to| self.send_heartbeat(to));
        }
        self.joins.expire(self.now, &self.settings);
        match self.is_witness() {
            false => self.review(),
            true => self.standing = Standing::Settled,
        }
    }

    fn is_witness(&self) -> bool {
        self.seat.is_some()
    }

    /// There is a link to a process: who is not in asks it too.
    pub fn handle_linked(&mut self, key: Key) {
        if !self.is_in() {
            self.remember([key]);
        }
    }

    /// The link to a process has ended: it need not fall silent first.
    pub fn handle_lost(&mut self, key: Key) {
        if self.view.lost(&key) {
            self.heartbeat_at = 0;
        }
    }

    /// This step is the next that is not counted.
    pub fn handle_step(&mut self, step: u64) {
        self.step = step;
    }

    /// It wants to leave in good order: it is out when it stands as [`Standing::Left`], and takes part until then.
    pub fn handle_leave(&mut self) {
        (self.leaving, self.heartbeat_at) = (true, 0);
    }

    /// A message has come over the link to the process with this key.
    pub fn handle_message(&mut self, from: Key, message: Message) {
        match message {
            Message::Heartbeat(heartbeat) => self.heard(from, heartbeat),
            Message::Join { member, seat } => self.asked(from, member, seat),
            Message::Later { incarnation, ticks } if incarnation == self.me.incarnation => {
                self.ask_at = self.now + ticks.min(LONGEST_WAIT);
            }
            Message::Later { .. } => {}
            Message::Decided(epoch) => self.adopt(epoch),
            about_a_vote => self.handle_vote(from, about_a_vote),
        }
    }

    /// It is a member or a witness of the last epoch that it knows.
    fn is_in(&self) -> bool {
        let Some(epoch) = &self.epoch else { return false };
        match self.is_witness() {
            false => epoch.rank(self.me).is_some(),
            true => epoch.witness(&self.me.key) == Some(self.me),
        }
    }

    fn standing_outside(&self) -> Standing {
        let replaced = self.epoch.iter().flat_map(|epoch| &epoch.members);
        let twin = replaced.filter(|member| member.key == self.me.key).any(|member| *member > self.me);
        match (self.leaving, self.was_in || twin) {
            (true, _) => Standing::Left,
            (_, true) => Standing::Evicted,
            _ => Standing::Joining,
        }
    }

    /// Whom it exchanges heartbeats with: members with all, witnesses with members.
    fn peers(&self) -> Vec<Key> {
        let Some(epoch) = &self.epoch else { return Vec::new() };
        let mut peers: Vec<Key> = epoch.members.iter().map(|member| member.key).collect();
        if let (false, Voters::Witnesses(witnesses)) = (self.is_witness(), &epoch.voters) {
            peers.extend(witnesses.iter().map(|witness| witness.member.key));
        }
        peers.retain(|&key| key != self.me.key);
        peers
    }

    fn send(&mut self, to: Key, message: Message) {
        self.actions.push_back(Action::Send { to, message });
    }

    fn send_heartbeat(&mut self, to: Key) {
        let epoch = self.epoch.as_ref();
        let mutual = epoch.map(|epoch| self.view.said(epoch, self.me, self.now));
        let heartbeat = Heartbeat {
            incarnation: self.me.incarnation,
            epoch: epoch.map_or(0, |epoch| epoch.number),
            step: self.step,
            leaving: self.leaving,
            hears_you: self.view.hears(&to, self.now),
            mutual: mutual.unwrap_or_default(),
        };
        self.send(to, Message::Heartbeat(heartbeat));
    }

    fn ask_to_join(&mut self) {
        self.ask_at = self.now + self.settings.heartbeat;
        let join = Message::Join { member: self.me, seat: self.seat.clone() };
        self.contacts.clone().into_iter().for_each(|to| self.send(to, join.clone()));
    }

    /// Whoever knows of nobody else asks these.
    fn remember(&mut self, keys: impl IntoIterator<Item = Key>) {
        for key in keys {
            if key != self.me.key && !self.contacts.contains(&key) {
                self.contacts.push(key);
            }
        }
        let over = self.contacts.len().saturating_sub(MOST_MEMBERS);
        self.contacts.drain(..over);
    }

    fn heard(&mut self, from: Key, heartbeat: Heartbeat) {
        match self.epoch.clone() {
            // What it hears says nothing before it knows who is in.
            Some(epoch) if heartbeat.epoch < epoch.number => return self.send(from, Message::Decided(epoch)),
            Some(epoch) if heartbeat.epoch == epoch.number => {}
            _ if heartbeat.epoch == 0 => {}
            _ => self.send_heartbeat(from), // which is answered by the epoch
        }
        self.view.note(&from, heartbeat, self.now);
    }

    fn asked(&mut self, from: Key, member: Member, seat: Option<Seat>) {
        let Some(epoch) = &self.epoch else { return };
        let (known, has_seat) = match &seat {
            None => (epoch_member(Some(epoch), &member.key), true),
            Some(seat) => {
                let known = epoch.witness(&member.key);
                (known, known.or_else(|| epoch.witness(&seat.of)).is_some())
            }
        };
        if known.is_some_and(|known| known >= member) || !has_seat {
            let epoch = epoch.clone();
            return self.send(member.key, Message::Decided(epoch));
        }
        if !self.is_in() || self.is_witness() {
            return;
        }
        let wait = self.joins.ask(member, seat.clone(), self.now, &self.settings);
        if wait > 0 {
            return self.send(member.key, Message::Later { incarnation: member.incarnation, ticks: wait });
        }
        // Who proposes first may not be one that a joiner can ask.
        if from == member.key {
            let join = Message::Join { member, seat };
            self.first_proposer().into_iter().for_each(|to| self.send(to, join.clone()));
        }
    }

    /// The last epoch is this one.
    fn adopt(&mut self, epoch: Epoch) {
        if self.epoch.as_ref().is_some_and(|own| own.number >= epoch.number) {
            return;
        }
        let left = |key: &Key| self.view.heartbeat(key, self.now).is_some_and(|heartbeat| heartbeat.leaving);
        let gone = self.epoch.iter().flat_map(|own| &own.members);
        let gone = gone.filter(|member| epoch.rank(**member).is_none() && !left(&member.key));
        let gone: Vec<Key> = gone.map(|member| member.key).collect();
        gone.into_iter().for_each(|key| self.joins.lost(key, self.now));
        let all: Vec<Member> = epoch.members.iter().copied().chain(epoch.voters()).collect();
        all.iter().for_each(|member| self.joins.remove(&member.key));
        if !self.is_in() {
            self.view = View::new(self.settings.silence); // nobody had reason to send it heartbeats
        }
        self.acceptor = Acceptor::default();
        self.proposer.stop();
        self.since = [None; 4];
        (self.heartbeat_at, self.pause_until, self.outdone) = (0, 0, 0);
        self.remember(epoch.members.iter().map(|member| member.key));
        self.epoch = Some(epoch.clone());
        self.view.watch(all.into_iter().filter(|peer| peer.key != self.me.key), self.now);
        self.was_in |= self.is_in();
        if self.was_in {
            self.store();
        }
        self.actions.push_back(Action::Entered(epoch));
    }

    /// A witness's promises outlive its process.
    fn store(&mut self) {
        if self.is_witness() {
            let (me, epoch, acceptor) = (self.me, self.epoch.clone(), self.acceptor.clone());
            self.actions.push_back(Action::Store(Record { me, epoch, acceptor }));
        }
    }
}

fn others(mut keys: Vec<Key>, me: Member) -> Vec<Key> {
    keys.retain(|&key| key != me.key);
    keys
}

fn epoch_member(epoch: Option<&Epoch>, key: &Key) -> Option<Member> {
    epoch.and_then(|epoch| epoch.rank_of(key).map(|rank| epoch.members[rank]))
}
