//! Reduces that are planned here: from the call on, until they are complete, fail, or are not wanted any more.

use std::collections::BTreeSet;

use super::Directory;
use crate::objects::message::Order;
use crate::objects::reduce::{attempt_of, Plan};
use crate::objects::small::SmallSum;
use crate::objects::{Bytes, Failure, Format, Ledger, ObjectId, Process, Request, SMALL_BYTES};

impl Directory {
    pub(super) fn begin(
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

    /// A shard that is one once more may have the plan of an attempt that another shard has replaced since, and whose orders holders
    /// do not follow any more: how the result stands with others shows that. The sum begins anew.
    pub(super) fn renew(&mut self, target: ObjectId, processes: &BTreeSet<Process>) {
        let Some(plan) = self.plans.get_mut(&target) else { return };
        let seen = self.entries.get(&target).map_or(0, |entry| attempt_of(entry.generation));
        let Some(root) = plan.root().filter(|_| seen > plan.attempt) else { return };
        let request = plan.request.clone();
        self.withdraw(target);
        self.begin(root, request, (seen + 1, None), processes);
    }

    pub(super) fn arrive(
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

    /// Why a source cannot be summed by the operator that was asked for.
    fn misfit(&self, target: ObjectId, object: ObjectId, format: Format) -> Option<Failure> {
        let planned = self.plans.get(&target).map(|plan| &plan.request);
        let op = planned.or(self.sums.get(&target).map(|sum| &sum.request))?.op;
        (!(self.operators)(op, format.kind)).then_some(Failure::Operator { object, format, op })
    }

    /// A source was deleted, says its shard.
    pub(super) fn go_without(&mut self, from: Process, target: ObjectId, object: ObjectId) {
        let why = Failure::Deleted { object };
        if self.sums.get_mut(&target).is_some_and(|sum| sum.forget(object)) {
            return self.fail(target, why);
        }
        if self.plans.get_mut(&target).is_some_and(|plan| plan.forget(object)) {
            self.give_up(from, target, why);
        }
    }

    /// Nothing comes of a reduce any more, unless it is complete already: only its destination knows.
    pub(super) fn give_up(&mut self, from: Process, target: ObjectId, why: Failure) {
        if self.sums.contains_key(&target) {
            return self.fail(target, why); // its sources turned out to be small while the destination was asked
        }
        let Some(plan) = self.plans.get(&target) else { return };
        match plan.root().filter(|&root| root != from) {
            Some(root) => self.order(root, Order::Unable { target, why }),
            None => self.fail(target, why),
        }
    }

    /// The reduce has no result: its caller and all that wait for it learn why.
    pub(super) fn fail(&mut self, target: ObjectId, why: Failure) {
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

    pub(super) fn withdraw(&mut self, target: ObjectId) {
        self.sums.remove(&target);
        if let Some(mut plan) = self.plans.remove(&target) {
            plan.release();
            plan.orders.into_iter().for_each(|(to, order)| self.order(to, order));
        }
    }

    pub(super) fn complete(&mut self, target: ObjectId) {
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
    pub(super) fn replace_root(&mut self, target: ObjectId, heir: Option<Process>) {
        let Some(heir) = heir else { return };
        self.entry(target).copies.become_writer(heir);
        if let Some(plan) = self.plans.get_mut(&target) {
            plan.move_root(heir);
        }
        self.forward_orders(target);
    }

    /// Sends what a plan has ordered, and what follows from it for who reads its result.
    pub(super) fn forward(&mut self, target: ObjectId, processes: &BTreeSet<Process>) {
        let Some(plan) = self.plans.get_mut(&target) else { return };
        let wanted = std::mem::take(&mut plan.wanted);
        wanted.into_iter().for_each(|object| self.ask_to_watch(target, object, processes));
        self.forward_orders(target);
    }

    pub(super) fn forward_orders(&mut self, target: ObjectId) {
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
}
