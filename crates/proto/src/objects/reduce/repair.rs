//! How slots are filled, given up and bypassed.

use std::collections::VecDeque;

use super::Plan;
use crate::objects::ledger::{Holder, Place};
use crate::objects::message::Feed;
use crate::objects::{Form, Mode, ObjectId, Process, Slot, ROOT};

impl Plan {
    /// Gives up what holds a slot, of which its parent has taken all up to `received`. Where that is a destination of which others
    /// may have more than it has itself, what they have is void.
    pub(super) fn vacate(&mut self, slot: Slot, received: u64) {
        let (parent, feed) = (self.parent(slot), self.feed(slot));
        let Some(dead) = self.place(slot).holder.take() else { return };
        let is_void = parent == ROOT && std::mem::take(&mut self.may_lag);
        let at = if self.request.mode == Mode::Ranges && !is_void { received } else { 0 };
        let place = self.place(slot);
        let taken = place.taken_from..at;
        (place.from, place.taken_from) = (at, at);
        place.history.cut(at);
        if !taken.is_empty() {
            self.place(parent).closed.push(Feed { range: taken, ..feed });
        }
        self.changed.insert(parent);
        if is_void {
            self.begin(ROOT, 0);
        } else if self.request.mode == Mode::Whole && received > 0 {
            self.begin_path(parent);
        }
        self.wanted.extend(dead.object);
        self.gone.extend(dead.object);
        for child in self.below(slot) {
            self.place(child).taken_from = at;
            let holder = self.slots[child as usize].holder;
            if holder.is_some_and(|holder| self.lost.contains(&holder.process)) {
                self.vacate(child, at);
            }
        }
    }

    /// Every sum from this slot to the root begins anew.
    pub(super) fn begin_path(&mut self, mut slot: Slot) {
        loop {
            let generation = self.next_generation();
            let place = self.place(slot);
            place.generation = generation;
            self.changed.insert(slot);
            if slot == ROOT {
                return;
            }
            slot = self.parent(slot);
        }
    }

    /// Fills open slots with spares, in order. In `Ranges`, those that cannot all be filled any more are bypassed.
    pub(super) fn settle(&mut self) {
        let open = |place: &Place| place.holder.is_none() && !place.is_bypassed;
        let slots = 1..self.slots.len() as Slot;
        let mut open: VecDeque<Slot> = slots.filter(|&slot| open(&self.slots[slot as usize])).collect();
        while let (Some(&slot), Some((object, process))) = (open.front(), self.spares.front().copied()) {
            self.spares.pop_front();
            let slot =
                if Some(process) == self.root() { self.beside_root(&open) } else { None }.unwrap_or(slot);
            open.retain(|&other| other != slot);
            self.fill(slot, object, process);
        }
        if self.request.mode == Mode::Ranges {
            self.bypass(&open);
        }
        self.flush();
    }

    /// Open slots are bypassed if too few sources can come for them, or if only such are open as were filled before: those
    /// that were filled before first. One stays while nobody adds anything.
    pub(super) fn bypass(&mut self, open: &VecDeque<Slot>) {
        let (mut order, fresh): (Vec<Slot>, Vec<Slot>) =
            open.iter().partition(|&&slot| self.slots[slot as usize].generation > 0);
        let expected = if fresh.is_empty() { 0 } else { self.pending.len() };
        let is_empty = self.slots[1..].iter().all(|place| place.holder.is_none());
        let stay = expected.max(usize::from(is_empty)).min(open.len());
        order.extend(fresh.into_iter().rev());
        for &slot in &order[..open.len() - stay] {
            let parent = self.parent(slot);
            let place = self.place(slot);
            place.is_bypassed = true;
            let at = place.taken_from;
            place.history.set(at, None);
            self.changed.insert(parent);
            self.feed_from(slot, at);
        }
    }

    /// Where a source of the destination's own process goes: what is next to the destination costs no link anything. Below
    /// two branches that would take in three streams, so there it goes to the end of one.
    pub(super) fn beside_root(&self, open: &VecDeque<Slot>) -> Option<Slot> {
        let shape = &self.tree.as_ref()?.shape;
        let is_near = |&slot: &Slot| match shape.form {
            Form::Trees { depth } if depth > 1 => shape.is_leaf(slot),
            _ => shape.parent[slot as usize] == ROOT,
        };
        open.iter().copied().find(is_near)
    }

    pub(super) fn fill(&mut self, slot: Slot, object: ObjectId, process: Process) {
        let place = self.place(slot);
        place.holder = Some(Holder { process, object: Some(object) });
        let at = place.from;
        self.begin(slot, at);
    }

    /// The sum of a slot begins anew, at `at`.
    pub(super) fn begin(&mut self, slot: Slot, at: u64) {
        let parent = self.parent(slot);
        let generation = self.next_generation();
        let place = self.place(slot);
        place.generation = generation;
        place.from = at;
        place.closed.clear();
        if let Some(holder) = place.holder.filter(|_| slot != ROOT) {
            place.history.set(at, holder.object);
        }
        self.changed.extend([slot, parent]);
        self.feed_from(slot, at);
    }

    /// What feeds this slot is taken from `at` on; a sum that begins later has to begin anew.
    pub(super) fn feed_from(&mut self, slot: Slot, at: u64) {
        for child in self.bypassed_below(slot) {
            self.place(child).history.set(at, None);
        }
        for child in self.below(slot) {
            let place = self.place(child);
            place.taken_from = at;
            if place.holder.is_none() {
                place.from = at;
                place.history.cut(at);
            } else if place.from > at {
                self.begin(child, at);
            }
        }
    }
}
