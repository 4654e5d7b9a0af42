//! Sums of small objects, which form where the directory's entry of the result is: nobody dials anybody.

use std::collections::{BTreeMap, BTreeSet};

use super::{Bytes, Failure, Format, Included, ObjectId, Process, Request};

/// What has come for one small sum. It needs no repair: what has come is here.
#[derive(Debug)]
pub(crate) struct SmallSum {
    pub(crate) request: Request,
    /// Who called, and lives.
    pub(crate) caller: Option<Process>,
    parts: BTreeMap<ObjectId, (Format, Bytes)>,
    /// Sources that were deleted.
    deleted: BTreeSet<ObjectId>,
}

impl SmallSum {
    pub(crate) fn new(request: Request, caller: Option<Process>, deleted: BTreeSet<ObjectId>) -> SmallSum {
        SmallSum { request, caller, parts: BTreeMap::new(), deleted }
    }

    /// A source was deleted. Returns whether too few are left; what has come of it counts.
    pub(crate) fn forget(&mut self, object: ObjectId) -> bool {
        self.deleted.insert(object);
        let is_left = |id: &&ObjectId| self.parts.contains_key(id) || !self.deleted.contains(id);
        self.request.ids.iter().filter(is_left).count() < self.request.count as usize
    }

    /// Another source. Returns all of them once, when there are as many as asked for.
    pub(crate) fn add(
        &mut self,
        object: ObjectId,
        format: Format,
        bytes: Option<Bytes>,
    ) -> Result<Option<Vec<Bytes>>, Failure> {
        if self.parts.len() == self.request.count as usize || self.parts.contains_key(&object) {
            return Ok(None);
        }
        if let Some((&one, &(first, _))) = self.parts.first_key_value().filter(|(_, part)| part.0 != format) {
            return Err(Failure::Unlike { one, other: object, formats: [first, format] });
        }
        let Some(bytes) = bytes else { return Ok(None) };
        self.parts.insert(object, (format, bytes));
        let is_full = self.parts.len() == self.request.count as usize;
        Ok(is_full.then(|| self.parts.values().map(|part| part.1.clone()).collect()))
    }

    pub(crate) fn format(&self) -> Option<Format> {
        self.parts.values().next().map(|part| part.0)
    }

    pub(crate) fn included(&self) -> Included {
        let size = self.format().map_or(0, |format| format.size);
        vec![(0..size, self.parts.keys().copied().collect())]
    }
}
