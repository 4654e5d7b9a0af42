//! Which form a reduce takes, and how large its blocks are: from the number of sources, the size and what was measured.
//!
//! **The model of [`Rule::Measured`].** A block of `b` bytes takes `t = b / rate` over a link, and each message keeps
//! sender and receiver busy for `c`. The first block goes through all hops of the longest way; each other block follows
//! as fast as the busiest process lets it: one that takes in `k` streams is busy for `max(k t, (k + 1) c)` per block.

use std::time::Duration;

use super::shape::{most_depth, Chains};
use super::{Costs, Form, Rule};

const LEAST_BLOCK: u64 = 4 << 10;
const MOST_BLOCK: u64 = 8 << 20;
/// Blocks hold whole elements of every type, and begin where a cache line does.
const ALIGN: u64 = 64;
/// A sweep passes the best block by less than half of this step, which costs next to nothing.
const STEP: f64 = 1.19;

/// Form and bytes per block of a reduce over `count` sources of `size` bytes.
///
/// Cost: a few hundred evaluations of the model.
pub fn choose(rule: Rule, count: u32, size: u64, costs: &Costs) -> (Form, u64) {
    let form = match rule {
        Rule::Measured => return search(&forms(count), count, size, costs),
        Rule::Hybrid => hybrid(count, size, bytes_in_flight(costs)),
        Rule::Degree => degree(count, size, bytes_in_flight(costs)),
        Rule::Given(form, block) => return (form, block.clamp(1, size.max(1))),
    };
    search(&[form], count, size, costs)
}

/// All forms that `count` sources may take.
pub fn forms(count: u32) -> Vec<Form> {
    let trees = (1..=most_depth(count)).map(|depth| Form::Trees { depth });
    [Form::Chain, Form::Star].into_iter().chain(trees).collect()
}

/// Bytes per block of a broadcast to `receivers`, which form a chain if they come together.
pub fn broadcast_block(receivers: u32, size: u64, costs: &Costs) -> u64 {
    search(&[Form::Chain], receivers.max(1), size, costs).1
}

/// Hoplite's last repository. `in_flight` is its rate times its latency, in bytes; the longest chain worth having is
/// the size over that.
pub fn hybrid(count: u32, size: u64, in_flight: f64) -> Form {
    let longest = (size as f64 / in_flight).round();
    let wanted = (f64::from(count + 2) / (longest + 1.0)).log2().ceil();
    match wanted.min(f64::from(most_depth(count))) {
        depth if depth > 0.0 => Form::Trees { depth: depth as u32 },
        _ => Form::Chain,
    }
}

/// Hoplite's paper: the least of `n L + S/B`, `L log2(n) + 2 S/B` and `L + n S/B`; of equal ones the first.
pub fn degree(count: u32, size: u64, in_flight: f64) -> Form {
    let (n, way) = (f64::from(count), size as f64 / in_flight);
    let (chain, binary, star) = (n + way, n.log2() + 2.0 * way, 1.0 + n * way);
    if chain <= binary && chain <= star {
        Form::Chain
    } else if binary <= star {
        Form::Trees { depth: most_depth(count) }
    } else {
        Form::Star
    }
}

fn bytes_in_flight(costs: &Costs) -> f64 {
    (costs.rate as f64 * costs.latency.as_secs_f64()).max(1.0)
}

fn search(forms: &[Form], count: u32, size: u64, costs: &Costs) -> (Form, u64) {
    let mut best = (f64::INFINITY, forms[0], size);
    for &form in forms {
        for block in blocks(size) {
            let takes = model(form, count, size, block, costs).as_secs_f64();
            if takes < best.0 {
                best = (takes, form, block);
            }
        }
    }
    (best.1, best.2)
}

/// The sizes of block that a search looks at, from the least on.
pub fn blocks(size: u64) -> impl Iterator<Item = u64> {
    let sizes = std::iter::successors(Some(LEAST_BLOCK as f64), |b| Some(b * STEP));
    let sizes =
        sizes.map(|b| (b as u64).next_multiple_of(ALIGN)).take_while(move |&b| b < size.min(MOST_BLOCK));
    sizes.chain([size.clamp(1, MOST_BLOCK)])
}

/// How long a reduce takes by the model, when all sources are there.
pub fn model(form: Form, count: u32, size: u64, block: u64, costs: &Costs) -> Duration {
    let (t, c) = (block as f64 / costs.rate as f64, costs.message.as_secs_f64());
    let hop = costs.latency.as_secs_f64() + t + 2.0 * c;
    let (way, streams) = match form {
        Form::Chain => (f64::from(count) * hop, 1.0),
        Form::Star => (hop, f64::from(count)),
        Form::Trees { depth } => {
            let longest = Chains::under(depth, count).length(0);
            (f64::from(longest + depth - 1) * hop, 2.0)
        }
    };
    let each = (streams * t).max((streams + 1.0) * c);
    let follow = size.div_ceil(block).max(1) as f64 * each - t.max(2.0 * c);
    Duration::from_secs_f64(way + follow.max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rate times latency of Hoplite's constants: 9.68 * 2^30 bit/s and 750 us.
    const IN_FLIGHT: f64 = 9.68 * (1u64 << 30) as f64 / 8.0 * 750e-6;

    /// Depth, and the longest chain; a chain alone counts the destination.
    fn shape(count: u32, size: u64) -> (u32, u32) {
        match hybrid(count, size, IN_FLIGHT) {
            Form::Trees { depth } => (depth, Chains::under(depth, count).length(0)),
            _ => (0, count + 1),
        }
    }

    #[test]
    fn hybrid_has_the_shapes_of_the_repository() {
        const KIB: u64 = 1 << 10;
        const MIB: u64 = 1 << 20;
        let rows: [(u32, [(u32, u32); 4]); 4] = [
            (7, [(3, 1), (3, 1), (1, 4), (0, 8)]),
            (15, [(4, 1), (4, 1), (2, 4), (1, 8)]),
            (31, [(5, 1), (5, 1), (3, 4), (2, 8)]),
            (63, [(6, 1), (6, 1), (4, 4), (3, 8)]),
        ];
        for (count, shapes) in rows {
            let sizes = [128 * KIB, MIB, 4 * MIB, 8 * MIB];
            assert_eq!(sizes.map(|size| shape(count, size)), shapes, "{count} sources");
        }
        for (count, size, expected) in
            [(7, 32, (0, 8)), (15, 32, (0, 16)), (31, 32, (0, 32)), (63, 32, (1, 32)), (63, 256, (0, 64))]
        {
            assert_eq!(shape(count, size * MIB), expected, "{count} sources, {size} MiB");
        }
    }

    #[test]
    fn degree_has_the_crossovers_of_the_paper() {
        for (n, to_binary_kib, to_chain_mib) in
            [(8u32, 317, 4.6), (16, 204, 11.2), (32, 127, 25.1), (64, 77, 53.9)]
        {
            let count = f64::from(n);
            let to_binary = IN_FLIGHT * (count.log2() - 1.0) / (count - 2.0);
            let to_chain = IN_FLIGHT * (count - count.log2());
            assert_eq!((to_binary / 1024.0).round() as u32, to_binary_kib);
            assert_eq!((to_chain / f64::from(1 << 20) * 10.0).round() / 10.0, to_chain_mib);
            let form = |size: f64| degree(n, size as u64, IN_FLIGHT);
            assert_eq!(form(to_binary - 2.0), Form::Star);
            assert!(matches!(form(to_binary + 2.0), Form::Trees { .. }));
            assert!(matches!(form(to_chain - 2.0), Form::Trees { .. }));
            assert_eq!(form(to_chain + 2.0), Form::Chain);
        }
    }

    #[test]
    fn blocks_grow_with_the_cost_of_a_message() {
        let costs = |us| Costs {
            latency: Duration::from_micros(100),
            rate: 1_250_000_000,
            message: Duration::from_micros(us),
        };
        let of = |us| choose(Rule::Measured, 16, 1 << 30, &costs(us));
        assert_eq!(of(1).0, Form::Chain);
        assert!(of(1).1 < of(10).1 && of(10).1 < of(100).1);
        assert_eq!(choose(Rule::Measured, 16, 100, &costs(1)).1, 100);
    }
}
