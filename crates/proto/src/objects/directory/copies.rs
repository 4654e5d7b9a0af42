//! What processes say of their copies, who feeds whom, and who is told of sources.

use std::collections::BTreeSet;

use super::{Directory, Entry};
use crate::objects::feeders::Grant;
use crate::objects::message::{Order, Report, State};
use crate::objects::rule::broadcast_block;
use crate::objects::{Failure, ObjectId, Process};

impl Directory {
    pub(super) fn take_standing(&mut self, from: Process, object: ObjectId, report: Report) {
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
            if let Some(plan) = self.plans.get_mut(&object) {
                plan.repeat();
            }
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

    /// Grants what can be granted.
    pub(super) fn serve(&mut self, object: ObjectId) {
        let (mut costs, receivers) = (self.costs, self.most_receivers);
        let entry = self.entry(object);
        if entry.bytes.is_some() {
            let waiting: Vec<Process> = entry.copies.take_waiting();
            for process in waiting {
                self.answer(process, object);
            }
            return;
        }
        let Some(format) = entry.format else { return };
        costs.rate = entry.copies.least_rate().unwrap_or(costs.rate);
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

    /// A process has no part in the object any more. What nobody knows of is not kept.
    pub(super) fn forget(&mut self, process: Process, object: ObjectId) {
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

    pub(super) fn delete(&mut self, object: ObjectId) {
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

    pub(super) fn watch(&mut self, object: ObjectId, target: ObjectId, shard: Process) {
        if self.deleted.has(object) {
            return self.report(shard, Report::Gone { target, object });
        }
        self.entry(object).watchers.insert((target, shard));
        self.tell_watchers(object);
    }

    pub(super) fn tell_watchers(&mut self, object: ObjectId) {
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
}
