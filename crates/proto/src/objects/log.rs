//! What a plan ordered, in the order in which it did.

use std::collections::BTreeSet;

use super::message::Assign;
use super::{ObjectId, Process, Request};

/// The orders of one reduce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// What it makes.
    pub target: ObjectId,
    /// What might be summed.
    pub ids: std::sync::Arc<[ObjectId]>,
    /// Bytes of the result; 0 as long as nothing has appeared.
    pub size: u64,
    /// It has all of them: no other shard had begun.
    pub has_all: bool,
    /// To whom, and what.
    pub orders: Vec<(Process, Assign)>,
}

impl Log {
    pub(crate) fn new(request: &Request) -> Log {
        Log { target: request.target, ids: request.ids.clone(), size: 0, has_all: true, orders: Vec::new() }
    }

    pub(crate) fn begin(&mut self, size: u64) {
        self.size = size;
    }

    pub(crate) fn push(&mut self, process: Process, assign: &Assign) {
        self.orders.push((process, assign.clone()));
    }

    /// Whoever was given a slot.
    pub(crate) fn holders(&self) -> BTreeSet<Process> {
        self.orders.iter().map(|order| order.0).collect()
    }
}
