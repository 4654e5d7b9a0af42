"""Kills virtual members by the hundred, and compares the model with that of a run in which nobody dies.

python -m tests.simulate.elastic_soak --members 16 --steps 1000 --kills 1500 --seed 7
"""

from __future__ import annotations

import argparse
import random
import time

from tests.simulate.test_elastic import trained


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulate.elastic_soak")
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--kills", type=int, default=800, help="about; some steps count before")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    given = parser.parse_args()
    undisturbed = trained(0, 0, given.steps, given.members)
    began = time.monotonic()
    run = trained(given.kills, given.seed, given.steps, given.members)
    apart = float((run.params - undisturbed.params).abs().max())
    print(f"seed {given.seed}: {run.kills} kills, {run.epochs} epochs, {time.monotonic() - began:.0f} s")
    print(f"after a loss: {run.taken} results taken, {run.anew} sums anew")
    print(f"samples counted as without kills: {run.counts == undisturbed.counts}; models {apart:.1e} apart")


if __name__ == "__main__":
    main()
