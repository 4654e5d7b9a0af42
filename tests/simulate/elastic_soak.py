"""Faults of virtual members by the hundred; the model is compared with that of a run without.

python -m tests.simulate.elastic_soak --members 16 --steps 1000 --kills 1500 --seed 7
python -m tests.simulate.elastic_soak --plan "after 3 steps kill 0,2; after 1 step cut 1-4 for 2s"
python -m tests.simulate.elastic_soak --seeds 100000      # short runs, on all cores: elastic_seeds.py
python -m tests.simulate.elastic_soak --seeds 1 --first 7   # one of them: also what it draws
"""

from __future__ import annotations

import argparse
import random
import time

from tests.simulate.elastic_seeds import by_all_cores, drawn
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
    parser.add_argument("--seeds", type=int, help="so many short runs instead")
    parser.add_argument("--first", type=int, default=0, help="of these seeds")
    given = parser.parse_args()
    if given.seeds is None:
        long(given)
    else:
        short(given.first, given.seeds)


def long(given: argparse.Namespace) -> None:
    """One run."""
    counts: dict[Kind, int] = {"kill": given.kills, "stop": given.stops, "cut": given.cuts}
    mean = 0.9 * given.steps / max(1, sum(counts.values()))
    by_seed = Plan.drawn(given.members, counts, seed=given.seed, mean_steps=mean)
    plan = by_seed if given.plan is None else Plan.parse(given.plan)
    undisturbed = trained(Plan(), 0, given.steps, given.members)
    began = time.monotonic()
    run = trained(plan, given.seed, given.steps, given.members)
    apart = float((run.params - undisturbed.params).abs().max())
    lost = f"{run.kills} kills, {run.evicted} evicted"
    print(f"seed {given.seed}: {lost}, {run.epochs} epochs, {time.monotonic() - began:.0f} s")
    print(f"after a loss: {run.taken} results taken, {run.anew} sums anew")
    print(f"samples counted as without faults: {run.counts == undisturbed.counts}; models {apart:.1e} apart")


def short(first: int, count: int) -> None:
    """One for each seed. Ends with an error if one is wrong."""
    if count == 1:
        print(drawn(first))
    began = time.monotonic()
    report = by_all_cores(first, count)
    for seed, text in report.wrong.items():
        print(f"seed {seed}: {text}")
    came = ", ".join(f"{number} {what}" for what, number in sorted(report.totals.items()))
    print(f"{count} seeds from {first}: {len(report.wrong)} wrong; {time.monotonic() - began:.0f} s")
    print(came)
    raise SystemExit(len(report.wrong) > 0)


if __name__ == "__main__":
    main()
