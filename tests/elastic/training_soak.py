"""Kills members of a plain loop by SIGKILL at any moment, lets them join again, and looks at the models.

    python -m tests.elastic.training_soak --members 4 --kills 40 --seed 7

Faults are as `tweed.testbed.faults` has them, each when all are in; rank 1 is spared. At the end the models
are compared with each other, and with that of the same loop without tweed.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import torch

import tweed
from tests.elastic.loops import BATCH, Trainee, dataset, ended, undisturbed
from tweed.systems.elastic.watched import Watched, Written, control, strike
from tweed.testbed import Ranks
from tweed.testbed.fault_injector import FaultInjector
from tweed.testbed.faults import Plan
from tweed.testbed.restarts import restarted

_COMPUTE_S = 0.01
#: Between drawn faults, on average.
_MEAN_S = 0.05


class Outcome(NamedTuple):
    """Of one member, at the end."""

    digest: str
    flat: list[float]
    steps_done: int
    epochs: int


def _rank(rank: int, size: int, folder: Path, at_most: int | None) -> Outcome:
    outcome: Outcome = restarted(_life, folder, rank, size, folder, at_most)
    return outcome


def _life(life: int, rank: int, size: int, folder: Path, at_most: int | None) -> Outcome:
    trainee, begin = Trainee(rank), time.monotonic()
    members = control(life, rank, size, size, folder)
    with tweed.attach(trainee.model, trainee.optimizer, elastic=members, bucket_bytes=1) as run:
        trainee.keep(run)
        with Written(folder, rank, life) as written:
            for x, y in run.batches(dataset(), 10**9, BATCH, seed=3, at_most=at_most, check_every=1):
                before = run.steps_done
                trainee.learn(x, y, lambda: time.sleep(_COMPUTE_S))
                if run.steps_done > before:
                    written.step(run.steps_done, begin, len(run.members))
                    begin = time.monotonic()
                if written.over(run.steps_done):
                    break
    end = ended(run, trainee, 0)
    return Outcome(end.digest, end.flat.tolist(), end.steps_done, len(end.epochs))


def soak(folder: Path, members: int, plan: Plan, at_most: int | None) -> list[Outcome]:
    """What each member has at the end."""
    with Ranks(_rank, members, folder, at_most) as ranks:
        watched = Watched(ranks, folder)
        strike(watched, FaultInjector(plan, members, watched.pid, folder=folder), members, away=0.0)
        found: list[Outcome] = watched.end(ahead=50)
    return found


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.elastic.training_soak")
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--at-most", type=int, default=None)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    given = parser.parse_args()
    began = time.monotonic()
    print(f"seed {given.seed}", flush=True)
    plan = Plan.drawn(given.members, {"kill": given.kills}, seed=given.seed, mean_s=_MEAN_S, spared=[1])
    with tempfile.TemporaryDirectory() as name:
        found = soak(Path(name), given.members, plan, given.at_most)
        lives = len(list(Path(name).glob("steps-*")))
    counted = found[1].steps_done
    apart = (torch.tensor(found[1].flat, dtype=torch.float64) - undisturbed(counted)).abs().max()
    print(f"{given.kills} kills, {lives} lives, {time.monotonic() - began:.0f} s")
    print(f"{counted} steps, {found[1].epochs} epochs")
    print(f"models equal: {len({(one.digest, one.steps_done) for one in found}) == 1}")
    print(f"from the loop without tweed: {float(apart):.1e}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
