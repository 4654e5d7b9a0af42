//! Small objects lie in the directory itself: who asks for one is sent it, and their sums are formed here.

use super::Directory;
use crate::objects::message::{Action, Order};
use crate::objects::{Bytes, Failure, ObjectId, Process};

impl Directory {
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

    pub(super) fn finish_small(&mut self, target: ObjectId, done: Result<Option<Vec<Bytes>>, Failure>) {
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

    /// A small object is its own answer.
    pub(super) fn answer(&mut self, to: Process, object: ObjectId) -> bool {
        let entry = self.entry(object);
        let (Some(bytes), Some(format)) = (entry.bytes.clone(), entry.format) else { return false };
        entry.copies.remove(to);
        entry.answered.insert(to);
        self.order(to, Order::Small { object, format, bytes });
        true
    }

    /// A small object is there for all.
    pub(super) fn show(&mut self, object: ObjectId, bytes: Bytes) {
        self.entry(object).bytes.get_or_insert(bytes);
        self.serve(object);
        self.tell_watchers(object);
    }
}
