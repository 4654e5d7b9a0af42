//! One process's share of the directory: the entries of the objects that hash to it.
//!
//! **Theory of operation.** An *entry* is made by whoever first reports about the object, be it that it wants it. It knows
//! the object's format once anyone does; its copies, who feeds whom, and who waits ([`Copies`]); a small object itself; and
//! the plan of the reduce that makes the object, if one does ([`Plan`]). Everything that is sent here is the full state of
//! its sender, so when another process becomes the shard, each holder reports once more to that one, and entries that
//! this process no longer answers for just stay behind; if it does once more, what they say of feeders is doubted.
//!
//! What cannot happen: a look-up of a small object opens a connection, as the answer brings the object; a small reduce
//! makes a tree; anyone is answered about an object that was deleted.

mod copies;
mod reduces;
mod small_objects;

use std::collections::{BTreeMap, BTreeSet};

use super::deleted::Deleted;
use super::feeders::Copies;
use super::message::{Action, Message, Order, Report};
use super::reduce::Plan;
use super::shards::shard_of;
use super::small::SmallSum;
use super::{Bytes, Costs, Format, Log, ObjectId, Operators, Process};

#[derive(Debug)]
pub(crate) struct Directory {
    me: Process,
    pub(crate) costs: Costs,
    entries: BTreeMap<ObjectId, Entry>,
    deleted: Deleted,
    plans: BTreeMap<ObjectId, Plan>,
    sums: BTreeMap<ObjectId, SmallSum>,
    /// Small sums that their callers have been told, and have not confirmed: had the shard moved meanwhile, another one might
    /// have formed, and callers take the first.
    told: BTreeMap<ObjectId, (Process, Bytes)>,
    lost: BTreeSet<Process>,
    /// How many processes may want an object.
    most_receivers: u32,
    pub(crate) operators: Operators,
    /// The logs of the reduces that are complete, if they are kept.
    pub(crate) logs: Option<Vec<Log>>,
    pub(crate) out: Vec<Action>,
}

#[derive(Debug, Default)]
struct Entry {
    format: Option<Format>,
    generation: u32,
    bytes: Option<Bytes>,
    block: Option<u64>,
    copies: Copies,
    /// Who was answered with the small object itself, and is no copy that others are sent to.
    answered: BTreeSet<Process>,
    /// Targets that this object is a source of, and the shards that plan them.
    watchers: BTreeSet<(ObjectId, Process)>,
}

impl Directory {
    pub(crate) fn new(me: Process, costs: Costs) -> Directory {
        let (entries, plans, sums) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Directory {
            me,
            costs,
            entries,
            deleted: Deleted::new(),
            plans,
            sums,
            told: BTreeMap::new(),
            lost: BTreeSet::new(),
            most_receivers: 1,
            operators: |_, _| true,
            logs: None,
            out: Vec::new(),
        }
    }

    pub(crate) fn handle(&mut self, from: Process, report: Report, processes: &BTreeSet<Process>) {
        self.most_receivers = processes.len() as u32;
        match report {
            Report::Holds { object, .. } if self.deleted.has(object) => {
                self.order(from, Order::Deleted { object })
            }
            Report::Holds { object, .. } => {
                self.take_standing(from, object, report);
                self.renew(object, processes);
            }
            Report::Forget { object } => self.forget(from, object),
            Report::Delete { object } => self.delete(object),
            Report::Watch { object, target } => self.watch(object, target, from),
            Report::Arrived { target, object, format, process, bytes } => {
                self.arrive(target, object, process, format, bytes);
            }
            Report::Gone { target, object } => self.go_without(from, target, object),
            Report::Unable { target, why } => self.give_up(from, target, why),
            Report::Reduce { request, attempt, ledger } => {
                self.begin(from, request, (attempt, ledger), processes);
            }
            Report::Withdraw { target } => self.withdraw(target),
            Report::Broken(broken) => {
                if let Some(plan) = self.plans.get_mut(&broken.target) {
                    plan.handle_broken(&broken);
                }
                self.forward(broken.target, processes);
            }
            Report::Kept { target, attempt, number } => {
                if let Some(plan) = self.plans.get_mut(&target) {
                    plan.handle_kept(from, attempt, number);
                }
                self.forward(target, processes);
            }
            Report::Ahead { target, slot, generation } => {
                if let Some(plan) = self.plans.get_mut(&target) {
                    plan.handle_ahead(slot, generation);
                }
                self.forward(target, processes);
            }
            Report::Lost { .. } => {}
        }
    }

    /// A process is dead.
    pub(crate) fn handle_lost(&mut self, process: Process, processes: &BTreeSet<Process>) {
        self.lost.insert(process);
        let told: Vec<ObjectId> =
            self.told.iter().filter(|told| told.1 .0 == process).map(|(&target, _)| target).collect();
        for target in told {
            let bytes = self.told.remove(&target).map(|told| told.1);
            bytes.into_iter().for_each(|bytes| self.show(target, bytes));
        }
        let before: BTreeSet<Process> = processes.iter().copied().chain([process]).collect();
        let objects: Vec<ObjectId> = self.entries.keys().chain(self.plans.keys()).copied().collect();
        for object in objects {
            let heir = self.entries.get(&object).and_then(|entry| entry.copies.heir(process));
            if let Some(plan) = self.plans.get_mut(&object) {
                let was_root = plan.root() == Some(process);
                plan.handle_lost(process);
                if was_root {
                    self.replace_root(object, heir);
                }
                self.forward(object, processes);
            }
            let entry = self.entry(object);
            entry.copies.remove(process);
            entry.answered.remove(&process);
            entry.watchers.retain(|watcher| watcher.1 != process);
            self.serve(object);
        }
        // What hashed to the dead process hashes to another now, which has to be asked to watch.
        for (target, object) in self.watched() {
            if shard_of(object, &before) == Some(process) {
                self.ask_to_watch(target, object, processes);
            }
        }
    }

    /// A process has come: what hashes to it is its own from now on, and those that report will do so there.
    pub(crate) fn handle_joined(&mut self, process: Process, processes: &BTreeSet<Process>) {
        let is_other = process != self.me;
        let moves = |object: &ObjectId| is_other && shard_of(*object, processes) == Some(process);
        self.entries.retain(|object, _| !moves(object));
        self.plans.retain(|target, _| !moves(target));
        self.sums.retain(|target, _| !moves(target));
        self.told.retain(|target, _| !moves(target));
        for (target, object) in self.watched() {
            if shard_of(object, processes) == Some(process) {
                self.ask_to_watch(target, object, processes);
            }
        }
    }

    fn entry(&mut self, object: ObjectId) -> &mut Entry {
        self.entries.entry(object).or_default()
    }

    fn order(&mut self, to: Process, order: Order) {
        self.out.push(Action::Send { to, message: Message::Order(order) });
    }

    fn report(&mut self, to: Process, report: Report) {
        self.out.push(Action::Send { to, message: Message::Report(report) });
    }

    /// All sources of all reduces that are planned here.
    fn watched(&self) -> Vec<(ObjectId, ObjectId)> {
        let requests =
            self.plans.values().map(|plan| &plan.request).chain(self.sums.values().map(|sum| &sum.request));
        requests.flat_map(|request| request.ids.iter().map(|&object| (request.target, object))).collect()
    }

    fn ask_to_watch(&mut self, target: ObjectId, object: ObjectId, processes: &BTreeSet<Process>) {
        if let Some(shard) = shard_of(object, processes) {
            self.report(shard, Report::Watch { object, target });
        }
    }
}
