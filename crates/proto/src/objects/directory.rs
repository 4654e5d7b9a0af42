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

use std::collections::{BTreeMap, BTreeSet};

use super::broadcast::{Copies, Grant};
use super::deleted::Deleted;
use super::message::{Action, Message, Order, Report, State};
use super::reduce::{attempt_of, Plan};
use super::rule::broadcast_block;
use super::shards::shard_of;
use super::small::SmallSum;
use super::{Bytes, Costs, Failure, Format, Ledger, Log, ObjectId, Operators, Process, Request, SMALL_BYTES};

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

    /// The driver has summed small objects.
    pub(crate) fn handle_small_sum(&mut self, target: ObjectId, bytes: Bytes) {
        let Some(sum) = self.sums.remove(&target) else { return };
        let (Some(format), included) = (sum.format(), sum.included()) else { return };
        self.entry(target).format = Some(format);
        let Some(caller) = sum.caller.filter(|caller| !self.lost.contains(caller)) else {
            return self.show(target, bytes);
        };
        let small = Some((format, bytes.clone()));
        self.order(caller, Order::Reduced { target, included, small });
        self.told.insert(target, (caller, bytes));
    }

    /// A small object is there for all.
    fn show(&mut self, object: ObjectId, bytes: Bytes) {
        self.entry(object).bytes.get_or_insert(bytes);
        self.serve(object);
        self.tell_watchers(object);
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

    fn take_standing(&mut self, from: Process, object: ObjectId, report: Report) {
        let Report::Holds { state, format, generation, fed_by, view, rate, bytes, .. } = report else {
            return;
        };
        if self.lost.contains(&from) {
            return;
        }
        let fed_by = fed_by.filter(|feeder| !self.lost.contains(feeder));
        let is_root = self.plans.get(&object).is_some_and(|plan| plan.root() == Some(from));
        // What is whole and no longer planned stays, whatever another shard had begun.
        let is_whole = bytes.is_some() || (state == State::Complete && !self.plans.contains_key(&object));
        let entry = self.entry(object);
        let is_old = generation < entry.generation && state != State::Wanted && !is_whole;
        if entry.format.is_some() && is_old {
            if is_root {
                return; // its order says so, which may still be held back
            }
            // It has not heard yet that the object begins anew.
            let generation = entry.generation;
            entry.copies.update(from, State::Wanted, rate, (fed_by, view));
            self.order(from, Order::Restart { object, generation });
            return self.serve(object);
        }
        entry.generation = entry.generation.max(generation);
        entry.format = entry.format.or(format);
        entry.bytes = entry.bytes.take().or(bytes);
        if entry.bytes.is_some() {
            self.told.remove(&object);
        }
        let entry = self.entry(object);
        if !(is_root && state == State::Wanted) {
            entry.copies.update(from, state, rate, (fed_by, view));
        }
        if is_root {
            self.plans.get_mut(&object).into_iter().for_each(Plan::repeat);
            self.forward_orders(object);
        }
        if state == State::Wanted && self.answer(from, object) {
            return;
        }
        if self.plans.get(&object).is_some_and(|plan| plan.root().is_none()) {
            self.replace_root(object, Some(from));
        }
        match state {
            State::Complete if is_root => self.complete(object),
            State::Complete | State::Writing => self.tell_watchers(object),
            State::Wanted | State::Receiving => {}
        }
        self.serve(object);
    }

    /// A shard that is one once more may have the plan of an attempt that another shard has replaced since, and whose orders holders
    /// do not follow any more: how the result stands with others shows that. The sum begins anew.
    fn renew(&mut self, target: ObjectId, processes: &BTreeSet<Process>) {
        let Some(plan) = self.plans.get_mut(&target) else { return };
        let seen = self.entries.get(&target).map_or(0, |entry| attempt_of(entry.generation));
        let Some(root) = plan.root().filter(|_| seen > plan.attempt) else { return };
        let request = plan.request.clone();
        self.withdraw(target);
        self.begin(root, request, (seen + 1, None), processes);
    }

    /// A small object is its own answer.
    fn answer(&mut self, to: Process, object: ObjectId) -> bool {
        let entry = self.entry(object);
        let (Some(bytes), Some(format)) = (entry.bytes.clone(), entry.format) else { return false };
        entry.copies.remove(to);
        entry.answered.insert(to);
        self.order(to, Order::Small { object, format, bytes });
        true
    }

    /// Grants what can be granted.
    fn serve(&mut self, object: ObjectId) {
        let (costs, receivers) = (self.costs, self.most_receivers);
        let entry = self.entry(object);
        if entry.bytes.is_some() {
            let waiting: Vec<Process> = entry.copies.take_waiting();
            for process in waiting {
                self.answer(process, object);
            }
            return;
        }
        let Some(format) = entry.format else { return };
        let mut orders = Vec::new();
        while let Some(grants) = entry.copies.grant() {
            let block = *entry.block.get_or_insert_with(|| broadcast_block(receivers, format.size, &costs));
            let generation = entry.generation;
            let feed = |Grant { receiver, from, view }| {
                (receiver, Order::Feed { object, format, generation, from, view, block })
            };
            orders.extend(grants.into_iter().map(feed));
        }
        orders.into_iter().for_each(|(to, order)| self.order(to, order));
    }

    fn delete(&mut self, object: ObjectId) {
        self.told.remove(&object);
        self.deleted.insert(object);
        let Entry { copies, watchers, answered, .. } = self.entries.remove(&object).unwrap_or_default();
        if self.plans.contains_key(&object) {
            self.fail(object, Failure::Deleted { object });
            self.entries.remove(&object);
        }
        let holders: BTreeSet<Process> = copies.processes().chain(answered).collect();
        holders.into_iter().for_each(|process| self.order(process, Order::Deleted { object }));
        watchers.iter().for_each(|&(target, shard)| self.report(shard, Report::Gone { target, object }));
    }

    /// A process has no part in the object any more. What nobody knows of is not kept.
    fn forget(&mut self, process: Process, object: ObjectId) {
        let Some(entry) = self.entries.get_mut(&object) else { return };
        entry.copies.remove(process);
        entry.answered.remove(&process);
        let is_known = entry.format.is_some() || !entry.watchers.is_empty();
        if !is_known && entry.copies.processes().next().is_none() {
            self.entries.remove(&object);
        } else {
            self.serve(object);
        }
    }

    fn watch(&mut self, object: ObjectId, target: ObjectId, shard: Process) {
        if self.deleted.has(object) {
            return self.report(shard, Report::Gone { target, object });
        }
        self.entry(object).watchers.insert((target, shard));
        self.tell_watchers(object);
    }

    fn tell_watchers(&mut self, object: ObjectId) {
        let entry = self.entry(object);
        let Some(format) = entry.format else { return };
        let bytes = entry.bytes.clone();
        let me = self.me;
        let entry = self.entry(object);
        let mut sources: Vec<Process> = entry.copies.sources().collect();
        if sources.is_empty() && bytes.is_some() {
            sources.push(me); // a small sum that was made here
        }
        let watchers: Vec<(ObjectId, Process)> = entry.watchers.iter().copied().collect();
        for (target, shard) in watchers {
            for &process in &sources {
                self.report(shard, Report::Arrived { target, object, format, process, bytes: bytes.clone() });
            }
        }
    }

    fn begin(
        &mut self,
        caller: Process,
        request: Request,
        (attempt, ledger): (u32, Option<Ledger>),
        processes: &BTreeSet<Process>,
    ) {
        let (target, ids) = (request.target, request.ids.len() as u32);
        if self.deleted.has(target) {
            let why = Failure::Deleted { object: target };
            return self.order(caller, Order::Failed { target, why });
        }
        if self.plans.get(&target).is_some_and(|plan| plan.attempt >= attempt)
            || self.sums.contains_key(&target)
        {
            return;
        }
        if request.count == 0 || request.count > ids {
            let why = Failure::Count { count: request.count, ids };
            return self.order(caller, Order::Failed { target, why });
        }
        let sources = request.ids.clone();
        let mut plan = Plan::new(request, attempt, caller, &self.lost);
        if let Some(ledger) = ledger {
            self.entry(target).format = Some(ledger.format);
            plan = plan.resume(ledger);
        }
        self.plans.insert(target, plan);
        self.forward(target, processes);
        sources.iter().for_each(|&object| self.ask_to_watch(target, object, processes));
    }

    fn arrive(
        &mut self,
        target: ObjectId,
        object: ObjectId,
        process: Process,
        format: Format,
        bytes: Option<Bytes>,
    ) {
        if let Some(why) = self.misfit(target, object, format) {
            return self.fail(target, why);
        }
        if let Some(sum) = self.sums.get_mut(&target) {
            let done = sum.add(object, format, bytes);
            return self.finish_small(target, done);
        }
        let Some(plan) = self.plans.get_mut(&target) else { return };
        if format.size <= SMALL_BYTES && plan.format().is_none() {
            let sum = SmallSum::new(plan.request.clone(), plan.root(), plan.deleted.clone());
            self.sums.insert(target, sum);
            self.plans.remove(&target);
            return self.arrive(target, object, process, format, bytes);
        }
        if let Err(why) = plan.arrive(object, process, format) {
            return self.fail(target, why);
        }
        self.entry(target).format = Some(format);
        self.forward_orders(target);
    }

    /// A source was deleted, says its shard.
    fn go_without(&mut self, from: Process, target: ObjectId, object: ObjectId) {
        let why = Failure::Deleted { object };
        if self.sums.get_mut(&target).is_some_and(|sum| sum.forget(object)) {
            return self.fail(target, why);
        }
        if self.plans.get_mut(&target).is_some_and(|plan| plan.forget(object)) {
            self.give_up(from, target, why);
        }
    }

    /// Nothing comes of a reduce any more, unless it is complete already: only its destination knows.
    fn give_up(&mut self, from: Process, target: ObjectId, why: Failure) {
        if self.sums.contains_key(&target) {
            return self.fail(target, why); // its sources turned out to be small while the destination was asked
        }
        let Some(plan) = self.plans.get(&target) else { return };
        match plan.root().filter(|&root| root != from) {
            Some(root) => self.order(root, Order::Unable { target, why }),
            None => self.fail(target, why),
        }
    }

    /// Why a source cannot be summed by the operator that was asked for.
    fn misfit(&self, target: ObjectId, object: ObjectId, format: Format) -> Option<Failure> {
        let planned = self.plans.get(&target).map(|plan| &plan.request);
        let op = planned.or(self.sums.get(&target).map(|sum| &sum.request))?.op;
        (!(self.operators)(op, format.kind)).then_some(Failure::Operator { object, format, op })
    }

    fn finish_small(&mut self, target: ObjectId, done: Result<Option<Vec<Bytes>>, Failure>) {
        match done {
            Ok(Some(parts)) => {
                let sum = &self.sums[&target];
                let Some(format) = sum.format() else { return };
                self.out.push(Action::SumSmall { target, format, op: sum.request.op, parts });
            }
            Err(why) => self.fail(target, why),
            Ok(None) => {}
        }
    }

    /// The reduce has no result: its caller and all that wait for it learn why.
    fn fail(&mut self, target: ObjectId, why: Failure) {
        let caller = self.sums.remove(&target).and_then(|sum| sum.caller);
        let mut plan = self.plans.remove(&target);
        let caller = caller.or(plan.as_ref().and_then(Plan::root));
        if let Some(plan) = &mut plan {
            plan.release();
            std::mem::take(&mut plan.orders).into_iter().for_each(|(to, order)| self.order(to, order));
        }
        let waiting: BTreeSet<Process> = self.entry(target).copies.processes().chain(caller).collect();
        waiting.into_iter().for_each(|to| self.order(to, Order::Failed { target, why: why.clone() }));
    }

    fn withdraw(&mut self, target: ObjectId) {
        self.sums.remove(&target);
        if let Some(mut plan) = self.plans.remove(&target) {
            plan.release();
            plan.orders.into_iter().for_each(|(to, order)| self.order(to, order));
        }
    }

    fn complete(&mut self, target: ObjectId) {
        // One that has not begun has made nothing: what is there is from another shard, which has not named the ids yet.
        if self.plans.get(&target).is_none_or(|plan| plan.format().is_none()) {
            return;
        }
        let Some(mut plan) = self.plans.remove(&target) else { return };
        plan.complete();
        let orders = std::mem::take(&mut plan.orders);
        orders.into_iter().for_each(|(to, order)| self.order(to, order));
        if let Some(logs) = &mut self.logs {
            logs.push(plan.log);
        }
        self.tell_watchers(target);
    }

    /// The destination has died: another that wants the result takes its place, at once or when it asks.
    fn replace_root(&mut self, target: ObjectId, heir: Option<Process>) {
        let Some(heir) = heir else { return };
        self.entry(target).copies.become_writer(heir);
        if let Some(plan) = self.plans.get_mut(&target) {
            plan.move_root(heir);
        }
        self.forward_orders(target);
    }

    /// Sends what a plan has ordered, and what follows from it for who reads its result.
    fn forward(&mut self, target: ObjectId, processes: &BTreeSet<Process>) {
        let Some(plan) = self.plans.get_mut(&target) else { return };
        let wanted = std::mem::take(&mut plan.wanted);
        wanted.into_iter().for_each(|object| self.ask_to_watch(target, object, processes));
        self.forward_orders(target);
    }

    fn forward_orders(&mut self, target: ObjectId) {
        let Some(plan) = self.plans.get_mut(&target) else { return };
        let (orders, generation, root) =
            (std::mem::take(&mut plan.orders), plan.root_generation(), plan.root());
        let entry = self.entries.entry(target).or_default();
        if let Some(root) = root.filter(|_| generation > entry.generation) {
            entry.generation = generation;
            let readers = entry.copies.restart(root);
            readers.into_iter().for_each(|to| self.order(to, Order::Restart { object: target, generation }));
        }
        orders.into_iter().for_each(|(to, order)| self.order(to, order));
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
