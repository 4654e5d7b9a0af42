//! Broadcasts and sums of which figures are shown: the same for tests and for `examples/objects_figures.rs`.

use std::sync::Arc;
use std::time::Duration;

use tweed_proto::objects::{Costs, Mode, ObjectId, Rule};
use tweed_schedule::{Link, Rank, Topology};

use super::{Setup, What};

/// What a broadcast or a sum makes.
pub const TARGET: ObjectId = ObjectId(7);

/// The source of a process.
pub fn source(process: Rank) -> ObjectId {
    ObjectId(1000 + u128::from(process))
}

/// A flat network with these costs, and nothing called yet.
pub fn flat(ranks: Rank, costs: &Costs) -> Setup {
    let topology = Topology::complete(ranks, Link::new(costs.rate, costs.latency));
    Setup { message: costs.message, ..Setup::new(Arc::new(topology)) }
}

/// Process 0 has an object, and all others want it, each so long after the one before.
pub fn broadcast(ranks: Rank, size: u64, costs: &Costs, gap: Duration) -> Setup {
    let mut setup = flat(ranks, costs);
    setup.call(Duration::ZERO, 0, What::Put { object: TARGET, size });
    (1..ranks).for_each(|rank| setup.call(gap * (rank - 1), rank, What::Get { object: TARGET }));
    setup
}

/// Which sum is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Sum {
    /// Sources; process 0, the destination, has none, and process `r` the `r`-th.
    pub sources: u32,
    /// The first so many are summed.
    pub count: u32,
    /// The bytes of each source.
    pub size: u64,
    /// Each appears so long after the one before.
    pub gap: Duration,
    /// How the sum is formed; see [`Mode`].
    pub mode: Mode,
    /// Which rule plans it; see [`Rule`].
    pub rule: Rule,
}

impl Sum {
    /// The sum of all sources, which are there from the start.
    pub fn of(sources: u32, size: u64) -> Sum {
        Sum { sources, count: sources, size, gap: Duration::ZERO, mode: Mode::Whole, rule: Rule::Measured }
    }

    /// When the last source appears.
    pub fn last(&self) -> Duration {
        self.gap * (self.sources - 1)
    }

    /// The run of it.
    pub fn setup(&self, costs: &Costs) -> Setup {
        let &Sum { sources, count, size, gap, mode, rule } = self;
        let mut setup = flat(sources + 1, costs);
        (1..=sources).for_each(|r| setup.call(gap * (r - 1), r, What::Put { object: source(r), size }));
        let ids = (1..=sources).map(source).collect();
        setup.call(Duration::ZERO, 0, What::Reduce { target: TARGET, ids, count, mode, rule });
        setup
    }

    /// All sources want the sum as well.
    pub fn all_reduce(&self, costs: &Costs) -> Setup {
        let mut setup = self.setup(costs);
        (1..=self.sources).for_each(|rank| setup.call(Duration::ZERO, rank, What::Get { object: TARGET }));
        setup
    }
}
