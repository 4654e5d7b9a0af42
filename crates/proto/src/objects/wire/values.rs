//! Each value of the planner as bytes: in what order its fields go, and which ones are none.

use super::codec::{fields, variants, Reader, Wire};
use super::{FileId, Frame};
use crate::objects::{
    Assign, Broken, Buffer, Bytes, Costs, Failure, Feed, Form, Format, History, Holder, Ledger, Mark,
    Message, Mode, ObjectId, Order, Place, Pull, Report, Request, Rule, Source, State, SMALL_BYTES,
};

/// No tree of less than 2^32 slots is deeper.
const MOST_DEPTH: u32 = 31;
/// So many sources one reduce may name: a plan takes some hundred bytes for each.
const MOST_SOURCES: usize = 1 << 16;
/// No object is longer. Whoever is told of a longer one would have to reckon beyond 64 bits.
const MOST_SIZE: u64 = 1 << 48;

/// So many bytes may be moved at a time.
pub(super) fn is_block(bytes: u64) -> bool {
    (1..=MOST_SIZE).contains(&bytes)
}

variants!(Frame {
    0u8 = Hello { descriptor },
    1u8 = Message { message },
    2u8 = Pull { stream, pull, maps },
    3u8 = Close { stream },
    4u8 = Block { stream, begin },
    5u8 = Resume { is_only },
    6u8 = Parted,
    7u8 = Mapped { stream, file, end },
    8u8 = Stop { stream },
    9u8 = Stopped { stream },
});

fields!(Mark { number, taken });
fields!(FileId { descriptor, tag });

variants!(Message { 0u8 = Report(report), 1u8 = Order(order) });

variants!(Report {
    0u8 = Holds { object, state, format, generation, fed_by, view, rate, bytes },
    1u8 = Forget { object },
    2u8 = Delete { object },
    3u8 = Watch { object, target },
    4u8 = Arrived { target, object, format, process, bytes },
    5u8 = Reduce { request, attempt, ledger },
    6u8 = Withdraw { target },
    7u8 = Broken(broken),
    8u8 = Lost { process, object },
    9u8 = Gone { target, object },
    10u8 = Unable { target, why },
    11u8 = Ahead { target, slot, generation },
    12u8 = Kept { target, attempt, number },
});

variants!(Order {
    0u8 = Feed { object, format, generation, from, view, block },
    1u8 = Small { object, format, bytes },
    2u8 = Restart { object, generation },
    3u8 = Deleted { object },
    4u8 = Assign(assign),
    5u8 = Ledger { request, attempt, number, ledger },
    6u8 = Release { target, attempt },
    7u8 = Lost { process, target },
    8u8 = Reduced { target, included, small },
    9u8 = Failed { target, why },
    10u8 = Unable { target, why },
});

variants!(State { 0u8 = Wanted, 1u8 = Receiving, 2u8 = Writing, 3u8 = Complete });
variants!(Buffer { 0u8 = Object(object), 1u8 = Partial { target, slot } });
variants!(Mode { 0u8 = Whole, 1u8 = Ranges });
variants!(Failure {
    0u8 = Unlike { one, other, formats },
    1u8 = Count { count, ids },
    2u8 = Deleted { object },
    3u8 = Operator { object, format, op },
    4u8 = Missing { target, object, process },
    5u8 = NoRoom { target, process, bytes },
});

fields!(Format { size, kind } if |format| format.size <= MOST_SIZE);
fields!(Broken { target, process, slot, generation, received });
fields!(Costs { latency, rate, message } if |costs| costs.rate > 0);
fields!(Request { target, ids, count, op, mode, rule, costs } if |request| request.ids.len() <= MOST_SOURCES);
fields!(Ledger { form, format, block, first, places, gone } if |ledger| is_block(ledger.block));
fields!(Place { holder, is_bypassed, generation, version, from, taken_from, closed, history });
fields!(Holder { process, object });
fields!(Assign { target, attempt, version, slot, generation, own, format, block, from, feeds, op }
    if |assign| is_block(assign.block) && assign.from <= assign.format.size
        && assign.feeds.iter().all(|feed| feed.range.end <= assign.format.size));
fields!(Feed { slot, generation, range, source });
fields!(Source { process, object, buffer });
fields!(Pull { from, buffer, generation, offset, end, block }
    if |pull| is_block(pull.block)
    && pull.end <= MOST_SIZE && pull.offset <= pull.end);

impl Wire for ObjectId {
    fn put(&self, into: &mut Vec<u8>) {
        self.0.put(into);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        u128::take(from).map(ObjectId)
    }
}

impl Wire for History {
    fn put(&self, into: &mut Vec<u8>) {
        self.0.put(into);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        Vec::take(from).map(History)
    }
}

/// The bytes of a small object, or a descriptor.
impl Wire for Bytes {
    fn put(&self, into: &mut Vec<u8>) {
        (self.len() as u32).put(into);
        into.extend_from_slice(self);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let length = u32::take(from)?;
        let bytes = from.slice(usize::try_from(length).ok()?)?;
        (u64::from(length) <= SMALL_BYTES).then(|| Bytes::from(bytes))
    }
}

impl Wire for Form {
    fn put(&self, into: &mut Vec<u8>) {
        match self {
            Form::Chain => 0u8.put(into),
            Form::Star => 1u8.put(into),
            Form::Trees { depth } => (2u8, *depth).put(into),
        }
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        match u8::take(from)? {
            0 => Some(Form::Chain),
            1 => Some(Form::Star),
            2 => u32::take(from)
                .filter(|depth| (1..=MOST_DEPTH).contains(depth))
                .map(|depth| Form::Trees { depth }),
            _ => None,
        }
    }
}

variants!(Rule { 0u8 = Measured, 1u8 = Hybrid, 2u8 = Degree, 3u8 = Given(form, block) });
