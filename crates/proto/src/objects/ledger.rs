//! What the plan of a reduce consists of. Its destination keeps a copy, from which another shard goes on.

use super::included::History;
use super::message::Feed;
use super::{Form, Format, ObjectId, Process, Slot};

/// The state of a plan, or of those slots that have changed since the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// The family of the tree.
    pub form: Form,
    /// The format of sources and result.
    pub format: Format,
    /// The number of bytes per block.
    pub block: u64,
    /// The first source that appeared: its format is that of all.
    pub first: ObjectId,
    /// Slots and what is known of them.
    pub places: Vec<(Slot, Place)>,
    /// Sources that appeared, and are gone with their process.
    pub gone: Vec<ObjectId>,
}

impl Ledger {
    /// Takes over what has changed.
    pub(crate) fn update(&mut self, newer: Ledger) {
        for (slot, place) in newer.places {
            match self.places.binary_search_by_key(&slot, |entry| entry.0) {
                Ok(at) => self.places[at].1 = place,
                Err(at) => self.places.insert(at, (slot, place)),
            }
        }
        self.gone = newer.gone;
    }
}

/// One slot of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Who has taken it.
    pub holder: Option<Holder>,
    /// Nobody takes it any more: what would feed it feeds its parent.
    pub is_bypassed: bool,
    /// Which sum of it; each one has a number of its own within the plan.
    pub generation: u32,
    /// Counts the orders to its holder.
    pub version: u32,
    /// Where its sum begins.
    pub from: u64,
    /// Where that which its parent takes of it begins.
    pub taken_from: u64,
    /// What its holder has of sources that are gone.
    pub closed: Vec<Feed>,
    /// What it adds to the result, by range.
    pub history: History,
}

/// Who has taken a slot; the destination brings no object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The process that has a source.
    pub process: Process,
    /// The source that it has.
    pub object: Option<ObjectId>,
}
