//! The plan of one reduce, kept by the shard of its target.
//!
//! **Theory of operation.** A reduce is a tree of *slots* ([`Shape`]), fixed when the first source appears, since only
//! then its size is known. A slot is
//!
//! ```text
//! open --a source appears--> filled --its process dies--> open, with `from` where its parent's copy ends
//!                                                     \--> bypassed: its children feed its parent (only `Ranges`)
//! ```
//!
//! A filled slot with children *sums*: its holder pulls the children's sums and adds its own object, block by block. The
//! sum has a `generation`, which counts how often it was begun, and begins at byte `from`. What the parent takes of a slot
//! begins at `taken_from`. What a parent had taken of a source that died stays among its `closed` feeds.
//!
//! *Who moves it.* [`Plan::arrive`]: a process has a source; it takes the first open slot, else it is a spare.
//! [`Plan::handle_broken`]: a parent gets no more of a child. Only the parent knows how much it has, so a death alone
//! changes a slot only where nobody takes its sum ([`Plan::handle_lost`]). [`Plan::settle`] then fills open slots.
//!
//! *What a repair costs.* In `Whole` the slot and all on the way to the root begin anew, at 0; other feeds of these keep
//! their generation, and their holders what they have. In `Ranges` only the slot begins anew, where its parent's copy
//! ends; slots below go further back only if their own sum began later than that.
//!
//! *When the shard dies.* Each change of a slot goes to the destination first, as a [`Ledger`], and the orders that follow from
//! it are held back until the destination says that it has it ([`Plan::handle_kept`]). So no holder follows what the
//! destination has not kept. When another process becomes the shard, the destination sends it the ledger, and the plan goes on
//! ([`Plan::resume`]): it repeats all orders, upon which holders repeat what is broken. Generations that it gives out are
//! higher than any that the old shard can have. Where two shards each have had a destination of their own, as one of these has died,
//! a holder may have followed orders that the ledger does not have: it sees by their numbers that it is ahead, and says so
//! ([`Plan::handle_ahead`]).
//!
//! *What cannot happen.* A value sums one id twice: an id takes one slot, and one that is in a range of the result does
//! not return. A sum ends before all that its feeds announce: an open slot is a feed without a source. A slot's holder
//! follows an order that has been replaced: orders to a slot are numbered.

mod repair;

use std::collections::{BTreeSet, VecDeque};

use super::included::included;
use super::ledger::{Holder, Ledger, Place};
use super::message::{Assign, Broken, Feed, Order, Source};
use super::rule::choose;
use super::{Buffer, Failure, Format, Included, Log, ObjectId, Process, Request, Shape, Slot, ROOT};

/// So many generations each shard may give out.
const GENERATIONS_BITS: u32 = 20;

/// In which attempt a generation was given out.
pub(crate) fn attempt_of(generation: u32) -> u32 {
    generation >> GENERATIONS_BITS
}

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) request: Request,
    pub(crate) attempt: u32,
    tree: Option<Tree>,
    slots: Vec<Place>,
    spares: VecDeque<(ObjectId, Process)>,
    /// Ids that may still appear for the first time; those that were there, and are gone with their process.
    pending: BTreeSet<ObjectId>,
    gone: BTreeSet<ObjectId>,
    /// Ids that were deleted.
    pub(crate) deleted: BTreeSet<ObjectId>,
    lost: BTreeSet<Process>,
    /// The destination is not the first one, as far as is known: others may have more of the result than it.
    may_lag: bool,
    last_generation: u32,
    /// Slots whose holders have to hear of a change, and those of which the destination has.
    changed: BTreeSet<Slot>,
    touched: BTreeSet<Slot>,
    /// How many ledgers there were, and what may be sent once the destination has this one.
    ledgers: u32,
    held: Vec<(u32, Process, Order)>,
    /// What is to be sent.
    pub(crate) orders: Vec<(Process, Order)>,
    /// Dead sources of which a copy elsewhere would do.
    pub(crate) wanted: Vec<ObjectId>,
    pub(crate) log: Log,
}

#[derive(Debug)]
struct Tree {
    shape: Shape,
    format: Format,
    first: ObjectId,
    block: u64,
}

impl Plan {
    pub(crate) fn new(request: Request, attempt: u32, root: Process, lost: &BTreeSet<Process>) -> Plan {
        let holder = Some(Holder { process: root, object: None });
        // What another shard may have let the destination sum is not ours: without its ledger the sum begins anew.
        let generation = attempt << GENERATIONS_BITS;
        Plan {
            tree: None,
            slots: vec![Place { holder, generation, ..Place::default() }],
            spares: VecDeque::new(),
            pending: request.ids.iter().copied().collect(),
            gone: BTreeSet::new(),
            deleted: BTreeSet::new(),
            lost: lost.clone(),
            may_lag: false,
            last_generation: generation,
            changed: BTreeSet::new(),
            touched: BTreeSet::new(),
            ledgers: 0,
            held: Vec::new(),
            orders: Vec::new(),
            wanted: Vec::new(),
            log: Log::new(&request),
            request,
            attempt,
        }
    }

    /// Goes on with what another shard had planned.
    pub(crate) fn resume(mut self, ledger: Ledger) -> Plan {
        let Ledger { form, format, block, first, places, gone } = ledger;
        let shape = Shape::new(form, self.request.count);
        let root = self.slots[ROOT as usize].holder;
        self.slots.resize_with(shape.parent.len(), Place::default);
        self.tree = Some(Tree { shape, format, first, block });
        self.log.begin(format.size);
        self.log.has_all = false;
        for (slot, known) in places {
            if let Some(place) = self.slots.get_mut(slot as usize) {
                *place = known.clone();
            }
        }
        self.slots[ROOT as usize].holder = root;
        self.may_lag = true;
        self.gone = gone.into_iter().collect();
        let is_pending = |object: &ObjectId| !self.is_in(*object) && !self.gone.contains(object);
        self.pending = self.request.ids.iter().copied().filter(is_pending).collect();
        self.changed = (0..self.slots.len() as Slot).collect();
        for dead in self.lost.clone() {
            self.handle_lost(dead);
        }
        self.settle();
        self
    }

    /// Who gets the result; none while the destination is dead and nobody else has asked.
    pub(crate) fn root(&self) -> Option<Process> {
        self.slots[ROOT as usize].holder.map(|holder| holder.process)
    }

    pub(crate) fn format(&self) -> Option<Format> {
        self.tree.as_ref().map(|tree| tree.format)
    }

    /// How often the result has begun anew.
    pub(crate) fn root_generation(&self) -> u32 {
        self.slots[ROOT as usize].generation
    }

    /// A process has a source.
    pub(crate) fn arrive(
        &mut self,
        object: ObjectId,
        process: Process,
        format: Format,
    ) -> Result<(), Failure> {
        self.pending.remove(&object);
        self.gone.remove(&object);
        if self.lost.contains(&process) {
            return Ok(());
        }
        if let Some(slot) = self.slot_of(object) {
            self.return_to(slot, object, process);
            return Ok(());
        }
        let tree = self.tree.get_or_insert_with(|| {
            let Request { rule, count, costs, .. } = &self.request;
            let (form, block) = choose(*rule, *count, format.size, costs);
            Tree { shape: Shape::new(form, *count), format, first: object, block }
        });
        if tree.format != format {
            let formats = [tree.format, format];
            return Err(Failure::Unlike { one: tree.first, other: object, formats });
        }
        if self.slots.len() == 1 {
            self.slots.resize_with(tree.shape.parent.len(), Place::default);
            self.log.begin(tree.format.size);
        }
        if !self.spares.iter().any(|spare| spare.0 == object) {
            self.spares.push_back((object, process));
        }
        self.settle();
        Ok(())
    }

    /// A source was deleted. Returns whether nothing comes of the sum any more: it was to be added, or too few are left.
    pub(crate) fn forget(&mut self, object: ObjectId) -> bool {
        self.deleted.insert(object);
        self.pending.remove(&object);
        self.gone.remove(&object);
        self.spares.retain(|spare| spare.0 != object);
        let adds = |place: &Place| place.holder.is_some_and(|holder| holder.object == Some(object));
        let left = self.request.ids.iter().filter(|id| !self.deleted.contains(id)).count();
        self.slots.iter().any(adds) || left < self.request.count as usize
    }

    /// The parent of a slot gets no more of it.
    pub(crate) fn handle_broken(&mut self, broken: &Broken) {
        let Some(place) = self.slots.get(broken.slot as usize) else { return };
        let fits = place.holder.is_some_and(|holder| holder.process == broken.process);
        if fits && place.generation == broken.generation {
            self.vacate(broken.slot, broken.received);
            self.settle();
        }
    }

    /// The destination has kept this ledger, and so all before it.
    pub(crate) fn handle_kept(&mut self, from: Process, attempt: u32, number: u32) {
        if self.root() != Some(from) || self.attempt != attempt {
            return;
        }
        let count = self.held.iter().take_while(|held| held.0 <= number).count();
        self.orders.extend(self.held.drain(..count).map(|(_, to, order)| (to, order)));
    }

    /// The destination says how it stands: it may not have kept what it was sent, as another process was the shard to it.
    pub(crate) fn repeat(&mut self) {
        if !self.held.is_empty() {
            self.touched.extend(0..self.slots.len() as Slot);
            self.flush();
        }
    }

    /// The sum of a slot may be of other sources than are planned here: it begins anew, with all on the way to the root.
    pub(crate) fn handle_ahead(&mut self, slot: Slot, generation: u32) {
        if self.slots.get(slot as usize).is_some_and(|place| place.generation == generation) {
            self.begin_path(slot);
            self.settle();
        }
    }

    /// A process is dead. What it held is given up where nobody takes it; elsewhere its parent has to report.
    pub(crate) fn handle_lost(&mut self, process: Process) {
        self.lost.insert(process);
        let spares: Vec<ObjectId> =
            self.spares.iter().filter(|spare| spare.1 == process).map(|spare| spare.0).collect();
        self.gone.extend(&spares);
        self.wanted.extend(spares); // another copy may have been passed over for this one
        self.spares.retain(|spare| spare.1 != process);
        let held = |place: &Place| place.holder.is_some_and(|holder| holder.process == process);
        if held(&self.slots[ROOT as usize]) {
            self.place(ROOT).holder = None;
        }
        for slot in 1..self.slots.len() as Slot {
            if !held(&self.slots[slot as usize]) {
                continue;
            }
            let parent = self.parent(slot);
            match self.slots[parent as usize].holder.map(|holder| holder.process) {
                None if parent != ROOT => self.vacate(slot, self.slots[slot as usize].taken_from),
                Some(above) if !self.lost.contains(&above) => {
                    self.orders.push((above, Order::Lost { process, target: self.request.target }));
                }
                _ => {}
            }
        }
        self.settle();
    }

    /// Another process is the destination from now on, in place of one that died. What it has of the result stays, unless
    /// ranges of it sum different ids: those might differ from what others have.
    pub(crate) fn move_root(&mut self, process: Process) {
        let is_mended = self.slots.iter().any(|place| place.history.entries() > 1);
        self.may_lag = true;
        self.place(ROOT).holder = Some(Holder { process, object: None });
        self.changed.insert(ROOT);
        self.touched.extend(0..self.slots.len() as Slot);
        // The one before may not have had it, and does not say so any more.
        self.held.iter_mut().for_each(|held| held.0 = self.ledgers + 1);
        if is_mended {
            self.begin(ROOT, 0);
        }
        let held = self.lost.iter().copied().filter(|&dead| self.holds_below_root(dead)).collect::<Vec<_>>();
        held.into_iter().for_each(|dead| self.handle_lost(dead));
        self.settle();
    }

    fn holds_below_root(&self, process: Process) -> bool {
        self.slots[1..].iter().any(|place| place.holder.is_some_and(|holder| holder.process == process))
    }

    /// The result is complete: what it sums, by range. Its sums may go.
    pub(crate) fn complete(&mut self) -> Included {
        let size = self.format().map_or(0, |format| format.size);
        let included = included(size, self.slots[1..].iter().map(|place| &place.history));
        self.release();
        if let Some(root) = self.root() {
            let (target, included) = (self.request.target, included.clone());
            self.orders.push((root, Order::Reduced { target, included, small: None }));
        }
        included
    }

    /// Whoever holds a sum may drop it.
    pub(crate) fn release(&mut self) {
        let release = Order::Release { target: self.request.target, attempt: self.attempt };
        let holders = self.slots.iter().filter_map(|place| place.holder).map(|holder| holder.process);
        let holders: BTreeSet<Process> = holders.chain(self.log.holders()).collect();
        self.orders.extend(holders.into_iter().map(|process| (process, release.clone())));
    }

    /// Is a source among those that are summed, or waits for it?
    fn is_in(&self, object: ObjectId) -> bool {
        self.slot_of(object).is_some() || self.spares.iter().any(|spare| spare.0 == object)
    }

    /// The slot that a source has, or that it had: ranges of the result sum it.
    fn slot_of(&self, object: ObjectId) -> Option<Slot> {
        let is_its = |place: &Place| {
            place.holder.is_some_and(|holder| holder.object == Some(object)) || place.history.has(object)
        };
        self.slots.iter().position(is_its).map(|slot| slot as Slot)
    }

    /// A source of which ranges of the result sum a part is there again: it goes on in its own slot or nowhere.
    fn return_to(&mut self, slot: Slot, object: ObjectId, process: Process) {
        let place = &self.slots[slot as usize];
        if place.holder.is_none() && !place.is_bypassed {
            self.fill(slot, object, process);
            self.settle();
        }
    }

    /// A slot that is about to change.
    fn place(&mut self, slot: Slot) -> &mut Place {
        self.touched.insert(slot);
        &mut self.slots[slot as usize]
    }

    fn next_generation(&mut self) -> u32 {
        self.last_generation += 1;
        self.last_generation
    }

    /// Whose sum this slot's goes to.
    fn parent(&self, slot: Slot) -> Slot {
        let Some(tree) = &self.tree else { return ROOT };
        let mut parent = tree.shape.parent[slot as usize];
        while self.slots[parent as usize].is_bypassed {
            parent = tree.shape.parent[parent as usize];
        }
        parent
    }

    /// Whose sums go to this slot's.
    fn below(&self, slot: Slot) -> Vec<Slot> {
        self.reached_below(slot)
            .into_iter()
            .filter(|&child| !self.slots[child as usize].is_bypassed)
            .collect()
    }

    /// What once fed this slot and does no longer.
    fn bypassed_below(&self, slot: Slot) -> Vec<Slot> {
        self.reached_below(slot).into_iter().filter(|&child| self.slots[child as usize].is_bypassed).collect()
    }

    /// The children of a slot, and of those of them that are bypassed, in order.
    fn reached_below(&self, slot: Slot) -> Vec<Slot> {
        let Some(tree) = &self.tree else { return Vec::new() };
        let (mut found, mut left) = (Vec::new(), Vec::new());
        left.extend(tree.shape.children[slot as usize].iter().rev());
        while let Some(child) = left.pop() {
            found.push(child);
            if self.slots[child as usize].is_bypassed {
                left.extend(tree.shape.children[child as usize].iter().rev());
            }
        }
        found
    }

    /// What a slot feeds its parent from now on.
    fn feed(&self, slot: Slot) -> Feed {
        let tree = self.tree.as_ref().expect("slots have a tree");
        let place = &self.slots[slot as usize];
        let target = self.request.target;
        let source = place.holder.and_then(|Holder { process, object }| {
            let object = object?;
            let buffer = match tree.shape.is_leaf(slot) {
                true => Buffer::Object(object),
                false => Buffer::Partial { target, slot },
            };
            Some(Source { process, object, buffer })
        });
        Feed { slot, generation: place.generation, range: place.taken_from..tree.format.size, source }
    }

    /// Sends what has changed to the destination, and to who sums when that has it.
    fn flush(&mut self) {
        for slot in std::mem::take(&mut self.changed) {
            let Some(tree) = &self.tree else { return };
            let Some(holder) = self.slots[slot as usize].holder else { continue };
            if tree.shape.is_leaf(slot) {
                continue;
            }
            let (format, block) = (tree.format, tree.block);
            let current = self.below(slot).into_iter().map(|child| self.feed(child));
            let feeds = self.slots[slot as usize].closed.iter().cloned().chain(current).collect();
            let (target, attempt) = (self.request.target, self.attempt);
            let place = self.place(slot);
            place.version += 1;
            let assign = Assign {
                target,
                attempt,
                version: place.version,
                slot,
                generation: place.generation,
                own: holder.object,
                format,
                block,
                from: place.from,
                feeds,
                op: self.request.op,
            };
            self.log.push(holder.process, &assign);
            self.held.push((self.ledgers + 1, holder.process, Order::Assign(assign)));
        }
        let Some(tree) = &self.tree else { return };
        let slots = std::mem::take(&mut self.touched).into_iter();
        let places: Vec<(Slot, Place)> =
            slots.map(|slot| (slot, self.slots[slot as usize].clone())).collect();
        if let Some(root) = self.root().filter(|_| !places.is_empty()) {
            let &Tree { ref shape, format, first, block } = tree;
            let gone = self.gone.iter().copied().collect();
            let ledger = Ledger { form: shape.form, format, block, first, places, gone };
            self.ledgers += 1;
            let (request, attempt, number) = (self.request.clone(), self.attempt, self.ledgers);
            self.orders.push((root, Order::Ledger { request, attempt, number, ledger }));
        }
    }
}
