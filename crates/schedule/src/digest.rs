//! A digest that is the same on every machine (FNV-1a, 64 bits).

use crate::{Draft, Rank};

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// Over all that a schedule does: not its name, not the topology it was checked against.
pub(crate) fn digest(draft: &Draft, contributors: Option<&[Vec<Rank>]>) -> u64 {
    let mut hash = OFFSET;
    let mut add_bytes =
        |bytes: &[u8]| bytes.iter().for_each(|&byte| hash = (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    add_bytes(draft.collective.name().as_bytes());
    let mut add = |numbers: &[u32]| numbers.iter().for_each(|number| add_bytes(&number.to_le_bytes()));
    add(&[draft.root, draft.ranks, draft.chunks]);
    for send in &draft.sends {
        add(&[send.step, send.src, send.dst, send.chunk, u32::from(send.reduce)]);
        for list in [&send.route, &send.after] {
            // The length goes first, so that two lists cannot be read as one.
            add(&[list.len() as u32]);
            add(list);
        }
    }
    for list in contributors.into_iter().flatten() {
        add(&[list.len() as u32]);
        add(list);
    }
    hash
}
