//! The slots of reduces that a process has.

use super::{Call, Held, Member};
use crate::objects::message::{Action, Assign, Broken, Report, Sink, State};
use crate::objects::role::{Changes, Role};
use crate::objects::shards::shard_of;
use crate::objects::{Included, Ledger, ObjectId, Process, Request, Slot, ROOT};

impl Member {
    /// What `shard` plans for a reduce of which this process is the destination. Returns whether it is kept.
    pub(super) fn keep(&mut self, shard: Process, request: Request, attempt: u32, ledger: Ledger) -> bool {
        if self.has_finished(request.target) {
            // The shard before has said so, and this one has not heard of it.
            self.report_standing(request.target);
            return false;
        }
        // It has not called: it is to take the place of one that died. The shard by now hears of it, and asks once more.
        let is_heir = !self.calls.contains_key(&request.target);
        let is_late = self.withdrawn.get(&request.target).is_some_and(|&last| last >= attempt);
        if is_heir && (is_late || shard_of(request.target, &self.processes) != Some(shard)) {
            return false;
        }
        let call =
            self.calls.entry(request.target).or_insert_with(|| Call { request, attempt, ledger: None });
        if attempt < call.attempt {
            return false; // of a shard before, while what is planned elsewhere counts by now
        }
        call.attempt = attempt;
        match &mut call.ledger {
            Some(kept) => kept.update(ledger),
            None => call.ledger = Some(ledger),
        }
        true
    }

    /// The object is complete here, and no reduce of this process makes it any more.
    fn has_finished(&self, target: ObjectId) -> bool {
        let is_complete = self.held.get(&target).is_some_and(|held| held.state == State::Complete);
        is_complete && !self.calls.contains_key(&target)
    }

    pub(super) fn assign(&mut self, assign: Assign) {
        let (target, slot) = (assign.target, assign.slot);
        let key = (target, slot);
        let is_old = self.calls.get(&target).is_some_and(|call| call.attempt > assign.attempt);
        if is_old {
            return; // the shard after that one goes on from what the ledger had before
        }
        if slot == ROOT && self.has_finished(target) {
            // The shard before has said so, and this one has not heard of it.
            return self.report_standing(target);
        }
        let known = self.roles.get(&key).map(|role| (role.assign.attempt, role.assign.version));
        if known.is_some_and(|known| known >= (assign.attempt, assign.version)) {
            return;
        }
        let is_ahead = self.roles.get(&key).is_some_and(|role| role.is_ahead_of(&assign));
        let generation = assign.generation;
        let mark = if slot == ROOT { self.become_root(&assign) } else { 0 };
        let changes = match self.roles.get_mut(&key) {
            Some(role) => role.change(assign, &mut self.last_stream),
            None => {
                let (role, changes) = Role::new(assign, mark, &mut self.last_stream);
                self.roles.insert(key, role);
                changes
            }
        };
        self.apply(key, changes);
        if is_ahead {
            self.report(target, Report::Ahead { target, slot, generation });
        }
        self.report_lost_feeds(key);
        self.fold(key);
        let is_complete = self.held.get(&target).is_some_and(|held| held.state == State::Complete);
        if slot == ROOT && is_complete {
            // The shard before may have been told, and this one not, or before it had planned anything.
            self.report_standing(target);
        }
    }

    /// The target is made here; returns how much of it is there already.
    pub(super) fn become_root(&mut self, assign: &Assign) -> u64 {
        let target = assign.target;
        let stream = self.held.get_mut(&target).and_then(|held| held.stream.take());
        stream.into_iter().for_each(|stream| self.close(stream));
        let held = self.held.entry(target).or_insert_with(|| Held::new(self.view));
        (held.format, held.fed_by) = (Some(assign.format), None);
        if held.generation != assign.generation {
            (held.generation, held.mark, held.state) = (assign.generation, 0, State::Wanted);
        }
        held.mark
    }

    pub(super) fn apply(&mut self, key: (ObjectId, Slot), changes: Changes) {
        if changes.begins_anew {
            let buffer = self.roles[&key].buffer();
            self.actions.push_back(Action::Reset { buffer });
        }
        changes.close.into_iter().for_each(|stream| self.close(stream));
        changes.open.into_iter().for_each(|(stream, pull)| self.open(stream, pull, Sink::Slot(key.0, key.1)));
    }

    pub(super) fn finish(&mut self, target: ObjectId, included: Included) {
        let call = self.calls.remove(&target);
        let has_moved = call.as_ref().is_some_and(|call| call.attempt > 0);
        if has_moved {
            // Another shard may have begun to make once more what is there now.
            self.report(target, Report::Withdraw { target });
        }
        if has_moved || self.bytes(target).is_some() {
            self.report_standing(target);
        }
        if call.is_some() {
            self.actions.push_back(Action::Reduced { target, included });
        }
    }

    pub(super) fn report_lost_feeds(&mut self, key: (ObjectId, Slot)) {
        for process in self.lost.iter().copied().collect::<Vec<_>>() {
            self.report_broken(key, process);
        }
    }

    pub(super) fn report_broken(&mut self, key: (ObjectId, Slot), process: Process) {
        let Some(role) = self.roles.get_mut(&key) else { return };
        let target = key.0;
        for (slot, generation, received, stream) in role.handle_lost(process) {
            stream.into_iter().for_each(|stream| self.close(stream));
            self.report(target, Report::Broken(Broken { target, process, slot, generation, received }));
        }
    }

    pub(super) fn release(&mut self, target: ObjectId, attempt: u32) {
        let over: Vec<(ObjectId, Slot)> = self
            .roles
            .range((target, 0)..=(target, Slot::MAX))
            .filter(|(_, role)| role.assign.attempt <= attempt)
            .map(|(&key, _)| key)
            .collect();
        over.into_iter().for_each(|key| self.drop_role(key));
    }

    pub(super) fn drop_role(&mut self, key: (ObjectId, Slot)) {
        let Some(role) = self.roles.remove(&key) else { return };
        role.streams().collect::<Vec<_>>().into_iter().for_each(|stream| self.close(stream));
        self.actions.push_back(Action::Over { target: key.0, slot: key.1 });
        if key.1 != ROOT {
            self.actions.push_back(Action::Release { buffer: role.buffer() });
        }
    }

    pub(super) fn fold(&mut self, key: (ObjectId, Slot)) {
        let Some(role) = self.roles.get_mut(&key) else { return };
        let own = role.own().map_or(0, |object| self.held.get(&object).map_or(0, |held| held.mark));
        self.actions.extend(role.poll_fold(own).map(Action::Fold));
    }

    /// What may have waited for bytes of an object held here.
    pub(super) fn fold_all(&mut self) {
        for key in self.roles.keys().copied().collect::<Vec<_>>() {
            self.fold(key);
        }
    }
}
