//! [`run`]: nodes, the messages between them, and what happens to both.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use tweed_proto::hub::Key;
use tweed_proto::members::{
    Action, Epoch, Member, Message, Node, Record, Seat, Standing, Voters, Why, Witness,
};
use tweed_rng::{mix, Rng};

use super::plan::{scenario, Fault, Id, Plan};
use crate::clock::Queue;

/// Ticks after the last fault within which all must have come to rest.
const SETTLES: u64 = 160;
/// Ticks after that in which nothing may change.
const RESTS: u64 = 40;

/// Where processes stand: those that live, the last life of each.
pub type Standings = BTreeMap<Id, Standing>;

/// What one or more runs showed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Epochs that were agreed after the first.
    pub epochs: u64,
    /// Processes that died in the runs.
    pub kills: u64,
    /// Runs that end with members which wait: too few voters or members are left.
    pub waiting: u64,
    /// Messages that were sent.
    pub messages: u64,
}

impl Report {
    /// Adds the counts of another report.
    pub fn add(&mut self, other: Report) {
        self.epochs += other.epochs;
        self.kills += other.kills;
        self.waiting += other.waiting;
        self.messages += other.messages;
    }
}

/// A process, under an address: several lives of one key have one each.
struct Process {
    id: Id,
    node: Node,
    is_alive: bool,
    /// Until this tick it does nothing.
    stopped: u64,
    leaves: bool,
    inbox: Vec<(Key, Rc<Message>)>,
}

/// What came of a run.
struct World<'a> {
    plan: &'a Plan,
    now: u64,
    rng: Rng,
    processes: Vec<Process>,
    lives: u64,
    stored: BTreeMap<Id, Record>,
    /// The witness in whose place each new witness is to be.
    replaces: BTreeMap<Id, Id>,
    queue: Queue<(usize, Key, Rc<Message>)>,
    cuts: BTreeMap<(Id, Id), u64>,
    split: (Vec<u8>, u64),
    first: Epoch,
    agreed: BTreeMap<u64, Epoch>,
    report: Report,
    wrong: Option<String>,
    trace: Option<Vec<String>>,
}

pub(super) fn key(id: Id) -> Key {
    // Not in the order of ids: the lowest key may be anybody's.
    let mut key = [0; 32];
    key[..8].copy_from_slice(&mix(id as u64 + 1).to_be_bytes());
    key
}

fn address(id: Id) -> String {
    format!("witness {id}")
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan) -> World<'a> {
        let member = |id| Member { key: key(id), incarnation: 1 };
        let witness = |id| Witness { member: member(id), address: address(id) };
        let witnesses = (plan.members..plan.members + plan.witnesses).map(witness).collect();
        let voters = if plan.witnesses == 0 { Voters::Members } else { Voters::Witnesses(witnesses) };
        let first = Epoch::first((0..plan.founders).map(member).collect(), voters);
        let mut world = World {
            plan,
            now: 0,
            rng: Rng::new(plan.seed),
            processes: Vec::new(),
            lives: 1,
            stored: BTreeMap::new(),
            replaces: BTreeMap::new(),
            queue: Queue::new(),
            cuts: BTreeMap::new(),
            split: (Vec::new(), 0),
            first: first.clone(),
            agreed: BTreeMap::new(),
            report: Report::default(),
            wrong: None,
            trace: None,
        };
        for id in 0..plan.founders {
            world.start(id, Node::founder(member(id), first.clone(), plan.settings.clone()));
        }
        for id in plan.members..plan.members + plan.witnesses {
            world.witness(id, member(id), Some(first.clone()));
        }
        world
    }

    fn witness(&mut self, id: Id, me: Member, epoch: Option<Epoch>) {
        let node = Node::witness(me, epoch, self.seat(id), self.contacts(), self.plan.settings.clone());
        self.start(id, node);
    }

    fn seat(&self, id: Id) -> Seat {
        Seat { of: key(*self.replaces.get(&id).unwrap_or(&id)), address: address(id) }
    }

    fn contacts(&self) -> Vec<Key> {
        (0..self.plan.members).map(key).collect()
    }

    fn start(&mut self, id: Id, node: Node) {
        self.processes.push(Process {
            id,
            node,
            is_alive: true,
            stopped: 0,
            leaves: false,
            inbox: Vec::new(),
        });
        self.carry_out(self.processes.len() - 1);
    }

    fn note(&mut self, line: impl FnOnce(u64) -> String) {
        let now = self.now;
        if let Some(trace) = &mut self.trace {
            trace.push(line(now));
        }
    }

    fn tick(&mut self) {
        self.now += 1;
        let due: Vec<Fault> = self
            .plan
            .faults
            .iter()
            .filter(|(at, _)| at + 1 == self.now)
            .map(|(_, fault)| fault.clone())
            .collect();
        due.into_iter().for_each(|fault| self.suffer(fault));
        while let Some((at, (to, from, message))) = self.queue.pop() {
            if at > self.now {
                self.queue.push(at, (to, from, message));
                break;
            }
            self.processes[to].inbox.push((from, message));
        }
        for place in 0..self.processes.len() {
            let process = &mut self.processes[place];
            if !process.is_alive || process.stopped > self.now {
                continue;
            }
            for (from, message) in std::mem::take(&mut process.inbox) {
                process.node.handle_message(from, Message::clone(&message));
            }
            process.node.handle_step(self.now / 8);
            process.node.handle_tick();
            self.carry_out(place);
            self.return_if_evicted(place);
        }
    }

    fn suffer(&mut self, fault: Fault) {
        self.note(|now| format!("{now}: {fault:?}"));
        match fault {
            Fault::Kill(id, is_heard) => self.kill(id, is_heard),
            Fault::Restart(id) => self.restart(id, true),
            Fault::RestartEmpty(id) => self.restart(id, false),
            Fault::Replace(old, new) => {
                self.replaces.insert(new, old);
                let me = self.life(new);
                self.witness(new, me, None);
            }
            Fault::Join(id) => self.join(id),
            Fault::Twin(id) if self.lives(id) => self.join(id),
            Fault::Twin(_) => {}
            Fault::Stop(id, ticks) => {
                let until = self.now + ticks;
                self.of(id).for_each(|process| process.stopped = until);
            }
            Fault::Cut(from, to, ticks) => {
                self.cuts.insert((from, to), self.now + ticks);
            }
            Fault::Split(parts, ticks) => self.split = (parts, self.now + ticks),
            Fault::Leave(id) => self.of(id).for_each(|process| {
                process.leaves = true;
                process.node.handle_leave();
            }),
        }
    }

    fn of(&mut self, id: Id) -> impl Iterator<Item = &mut Process> {
        self.processes.iter_mut().filter(move |process| process.id == id && process.is_alive)
    }

    fn lives(&self, id: Id) -> bool {
        self.processes.iter().any(|process| process.id == id && process.is_alive)
    }

    fn standings(&self) -> Standings {
        let living = self.processes.iter().filter(|process| process.is_alive);
        living.map(|process| (process.id, process.node.standing())).collect()
    }

    fn kill(&mut self, id: Id, is_heard: bool) {
        self.report.kills += u64::from(self.lives(id));
        self.of(id).for_each(|process| process.is_alive = false);
        if is_heard {
            let others = self.processes.iter_mut().filter(|process| process.is_alive);
            others.for_each(|process| process.node.handle_lost(key(id)));
        }
    }

    fn life(&mut self, id: Id) -> Member {
        self.lives += 1;
        Member { key: key(id), incarnation: self.lives }
    }

    fn restart(&mut self, id: Id, with_memory: bool) {
        if self.lives(id) {
            return;
        }
        match self.stored.get(&id).cloned() {
            Some(record) if self.plan.forgetful => {
                self.witness(id, record.me, Some(self.first.clone()));
            }
            Some(record) if with_memory => {
                let (settings, contacts) = (self.plan.settings.clone(), self.contacts());
                self.start(id, Node::restored(record, self.seat(id), contacts, settings));
            }
            _ if id < self.plan.members => self.join(id),
            _ => {
                let me = self.life(id);
                self.witness(id, me, None);
            }
        }
    }

    fn join(&mut self, id: Id) {
        let me = self.life(id);
        self.start(id, Node::joiner(me, self.contacts(), self.plan.settings.clone()));
    }

    /// A member that finds itself out comes back as another life, unless one runs already. A witness goes on telling others.
    fn return_if_evicted(&mut self, place: usize) {
        let Process { id, ref node, .. } = self.processes[place];
        if node.standing() != Standing::Evicted || id >= self.plan.members {
            return;
        }
        let newer = |process: &Process| {
            process.id == id && process.is_alive && process.node.me() > self.processes[place].node.me()
        };
        let has_newer = self.processes.iter().any(newer);
        self.processes[place].is_alive = false;
        if !has_newer {
            self.join(id);
        }
    }

    fn carry_out(&mut self, place: usize) {
        while let Some(action) = self.processes[place].node.poll() {
            match action {
                Action::Send { to, message } => self.send(place, to, message),
                Action::Store(record) => {
                    self.stored.insert(self.processes[place].id, record);
                }
                Action::Entered(epoch) => self.entered(place, epoch),
            }
        }
    }

    fn send(&mut self, place: usize, to: Key, message: Message) {
        self.report.messages += 1;
        if !matches!(message, Message::Heartbeat(_))
            && Message::decode(&message.encode()).as_ref() != Some(&message)
        {
            self.wrong.get_or_insert(format!("{message:?} does not survive the wire"));
        }
        let (from, message) = (self.processes[place].id, Rc::new(message));
        for receiver in 0..self.processes.len() {
            let id = self.processes[receiver].id;
            if key(id) != to
                || !self.processes[receiver].is_alive
                || receiver == place
                || self.is_cut(from, id)
            {
                continue;
            }
            let times = match self.rng.below(100) {
                draw if self.now >= self.plan.calm || draw >= self.plan.lost + self.plan.doubled => 1,
                draw if draw < self.plan.lost => 0,
                _ => 2,
            };
            for _ in 0..times {
                let at = self.now + 1 + self.rng.below(self.plan.delay);
                self.queue.push(at, (receiver, key(from), message.clone()));
            }
        }
    }

    fn is_cut(&self, from: Id, to: Id) -> bool {
        let (parts, until) = &self.split;
        let is_apart = *until > self.now && parts.get(from) != parts.get(to);
        is_apart || self.cuts.get(&(from, to)).is_some_and(|until| *until > self.now)
    }

    fn entered(&mut self, place: usize, epoch: Epoch) {
        let id = self.processes[place].id;
        self.note(|now| format!("{now}: {id} enters {}", text(&epoch)));
        if !epoch.is_sound() || epoch.members.len() < self.plan.settings.min_members {
            self.wrong.get_or_insert(format!("process {id} enters {}", text(&epoch)));
        }
        let first = self.agreed.entry(epoch.number).or_insert_with(|| epoch.clone());
        if *first != epoch {
            let both =
                format!("epoch {} is agreed twice: {} and {}", epoch.number, text(first), text(&epoch));
            self.wrong.get_or_insert(both);
        }
    }

    /// What is wrong about how it ended, if anything.
    fn judge(&mut self) -> Option<String> {
        if let Some(wrong) = self.wrong.take() {
            return Some(wrong);
        }
        self.report.epochs = self.agreed.len() as u64 - 1;
        let living = || self.processes.iter().filter(|process| process.is_alive);
        let members = || living().filter(|process| process.id < self.plan.members);
        // What was agreed by those who are gone, and nobody else has heard of, binds nobody any more.
        let known = living().filter_map(|process| process.node.epoch());
        let last = known.max_by_key(|epoch| epoch.number)?.clone();
        let votes = living().map(|process| process.node.me()).collect();
        let expected = self.expected(&last);
        let has_state = expected.iter().any(|member| last.members.contains(member));
        let able = has_state && last.is_quorum(&votes) && expected.len() >= self.plan.settings.min_members;
        let settled: BTreeSet<Member> = last.members.iter().copied().collect();
        if able && settled != expected {
            return Some(format!("it ends with {}, and these live: {}", text(&last), names(&expected)));
        }
        let wrong = members().find_map(|process| complaint(process, &last, able));
        let wrong =
            wrong.or_else(|| living().find_map(|process| self.unseated(process, &last)).filter(|_| able));
        self.report.waiting = u64::from(!able);
        wrong
    }

    /// A witness that lives has the seat that it asks for, unless another one had it before.
    fn unseated(&self, process: &Process, last: &Epoch) -> Option<String> {
        let (id, me) = (process.id, process.node.me());
        let holder = last.witness(&me.key).or_else(|| last.witness(&self.seat(id).of));
        let is_without = id >= self.plan.members && holder.is_some_and(|holder| holder != me);
        is_without.then(|| format!("witness {id} has no vote in {}", text(last)))
    }

    /// Who should be in at the end: of each key that does not leave, the last life that lives.
    fn expected(&self, last: &Epoch) -> BTreeSet<Member> {
        let staying = self.processes.iter().filter(|process| process.is_alive && !process.leaves);
        let staying = staying.filter(|process| process.id < self.plan.members);
        // Nobody can let in another life of the only member.
        let is_only = |process: &Process| {
            last.members.len() == 1
                && process.node.me().key == last.members[0].key
                && process.node.epoch().is_none()
        };
        let lives = staying.filter(|process| !is_only(process)).map(|process| process.node.me());
        lives.map(|me| (me.key, me)).collect::<BTreeMap<Key, Member>>().into_values().collect()
    }
}

fn complaint(process: &Process, last: &Epoch, able: bool) -> Option<String> {
    let (id, standing) = (process.id, process.node.standing());
    let is_explained = match standing {
        Standing::Settled => process.node.epoch() == Some(last),
        Standing::Waiting(Why::NoQuorum { .. } | Why::TooFew { .. }) => !able,
        Standing::Joining => !able || last.rank_of(&process.node.me().key).is_some(),
        Standing::Left => true,
        Standing::Changing | Standing::Evicted => false,
    };
    (!is_explained).then(|| format!("process {id} ends as {standing:?}, able {able}, {}", text(last)))
}

fn names<'a>(members: impl IntoIterator<Item = &'a Member>) -> String {
    let name = |member: &Member| format!("{:02x}#{}", member.key[0], member.incarnation);
    members.into_iter().map(name).collect::<Vec<_>>().join(" ")
}

fn text(epoch: &Epoch) -> String {
    let Epoch { number, missing, first_step, .. } = epoch;
    let (members, voters) = (names(&epoch.members), names(&epoch.voters()));
    format!("epoch {number} of [{members}], voters [{voters}], missing {missing:?}, from step {first_step}")
}

fn play(
    plan: &Plan,
    with_trace: bool,
    mut seen: impl FnMut(u64, Standings),
) -> (Result<Report, String>, Vec<String>) {
    let mut world = World::new(plan);
    world.trace = with_trace.then(Vec::new);
    while world.now < plan.calm + SETTLES && world.wrong.is_none() {
        world.tick();
        seen(world.now, world.standings());
    }
    let epochs = world.agreed.len();
    for _ in 0..RESTS {
        world.tick();
    }
    let restless =
        (world.agreed.len() > epochs).then(|| "epochs follow each other for no reason".to_string());
    let wrong = world.judge().or(restless);
    (wrong.map_or(Ok(world.report), Err), world.trace.unwrap_or_default())
}

/// Carries a plan out. Says what came of it, or what is wrong about it.
///
/// # Errors
/// What must not be, in words: a defect of tweed.
pub fn run(plan: &Plan) -> Result<Report, String> {
    play(plan, false, |_, _| {}).0
}

/// As [`run`]; `seen` is called with each tick, and where processes stand then.
///
/// # Errors
/// See [`run`].
pub fn watch(plan: &Plan, seen: impl FnMut(u64, Standings)) -> Result<Report, String> {
    play(plan, false, seen).0
}

/// Runs the seed and says what is wrong about what came of it.
///
/// # Errors
/// See [`run`].
pub fn verify(seed: u64) -> Result<Report, String> {
    run(&scenario(seed))
}

/// What happens in a run, for people.
pub fn describe(seed: u64) -> String {
    let plan = scenario(seed);
    let (result, trace) = play(&plan, true, |_, _| {});
    let Plan { founders, members, witnesses, delay, lost, doubled, calm, .. } = plan;
    let head = format!(
        "{founders} founders of {members}, {witnesses} witnesses, at least {}; delay {delay}, lost {lost} %, doubled {doubled} %, \
         calm from {calm}",
        plan.settings.min_members
    );
    format!("{head}\n{}\n{result:?}", trace.join("\n"))
}
