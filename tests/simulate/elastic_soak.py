"""Faults of virtual members by the hundred; the model is compared with that of a run without.

python -m tests.simulate.elastic_soak --members 16 --steps 1000 --kills 1500 --seed 7
python -m tests.simulate.elastic_soak --plan "after 3 steps kill 0,2; after 1 step cut 1-4 for 2s"
"""

from __future__ import annotations

import argparse
import random
import time

from tests.simulate.test_elastic import trained
from tweed.testbed.faults import Kind, Plan


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulate.elastic_soak")
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--steps", type=int, default=500)
    for kind in ("kills", "stops", "cuts"):
        parser.add_argument(f"--{kind}", type=int, default=800 if kind == "kills" else 0)
    parser.add_argument("--plan", help="these faults instead")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    given = parser.parse_args()
    counts: dict[Kind, int] = {"kill": given.kills, "stop": given.stops, "cut": given.cuts}
    mean = 0.9 * given.steps / max(1, sum(counts.values()))
    drawn = Plan.drawn(given.members, counts, seed=given.seed, mean_steps=mean)
    plan = drawn if given.plan is None else Plan.parse(given.plan)
    undisturbed = trained(Plan(), 0, given.steps, given.members)
    began = time.monotonic()
    run = trained(plan, given.seed, given.steps, given.members)
    apart = float((run.params - undisturbed.params).abs().max())
    lost = f"{run.kills} kills, {run.evicted} evicted"
    print(f"seed {given.seed}: {lost}, {run.epochs} epochs, {time.monotonic() - began:.0f} s")
    print(f"after a loss: {run.taken} results taken, {run.anew} sums anew")
    print(f"samples counted as without faults: {run.counts == undisturbed.counts}; models {apart:.1e} apart")


if __name__ == "__main__":
    main()
