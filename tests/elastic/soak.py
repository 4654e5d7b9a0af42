"""Faults of live members while they train; who was killed is started again; and what is left is looked at.

    python -m tests.elastic.soak --members 8 --kills 500 --seed 7
    python -m tests.elastic.soak --members 8 --kills 50 --stops 50 --seed 7
    python -m tests.elastic.soak --members 4 --kills 0 --interrupts 50 --seed 7
    python -m tests.elastic.soak --plan "after 1s kill 0,2; after 1s clock 3 by -30s; after 0s kill 3"

Faults are as `tweed.testbed.faults` has them: half of the stops are for 0.3 s, which is to evict nobody, the
others for 2 s, which evicts. Interrupts are signals behind these, whose handler raises within a step that is
called again then; most wait until steps count again. Members are processes of this host, which join again
when they were killed. One of them is spared where faults are drawn: what it holds of memory, descriptors and
threads when all are in, after ten epochs and once it has the store of their meetings, is compared with what
it holds when that is so last. The model is compared with that of a run in which nobody dies.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from tests.elastic.interrupts import Interruptible
from tests.elastic.trains import Trainee, sampler
from tests.simulate.test_elastic import trained
from tweed.elastic import ElasticRun
from tweed.systems.elastic.training import Held
from tweed.systems.elastic.watched import Watched, Written, control, strike
from tweed.testbed import Ranks
from tweed.testbed.fault_injector import FaultInjector
from tweed.testbed.faults import Kind, Plan
from tweed.testbed.restarts import restarted

#: That many of eight may be away at a time, by their share.
_AWAY = 0.25
_COMPUTE_S = 0.01
#: Between drawn faults, on average; and between interrupts.
_MEAN_S, _MEAN_OF_INTERRUPTS_S = 0.5, 0.2
#: So often members come to no step before the next interrupt.
_AT_ONCE = 0.25


class Outcome(NamedTuple):
    """Of one member, at the end."""

    digest: str
    params: list[float]
    steps_done: int
    epochs: int
    interrupts: int
    held: Sequence[Held]


def _rank(rank: int, size: int, folder: Path) -> Outcome:
    outcome: Outcome = restarted(_life, folder, rank, size, folder)
    return outcome


def _life(life: int, rank: int, size: int, folder: Path) -> Outcome:
    trainee, held = Trainee(lr=0.05), list[Held]()
    elastic = control(life, rank, size, size, folder)
    run = ElasticRun(elastic, sampler(), trainee.keep, check_every=1)
    steps = Interruptible(run)
    with Written(folder, rank, life) as written:
        while not written.over(run.steps_done):
            begin = time.monotonic()
            trainee.step(steps, lambda: time.sleep(_COMPUTE_S))
            written.step(run.steps_done, begin, len(run.members))
            all_in = len(run.members) == size and len(run.epochs) > 10
            if all_in and elastic.epoch.caller == elastic.key:
                held.append(Held.now())
    run.finish()
    elastic.close()
    params, epochs = trainee.params.tolist(), len(run.epochs)
    return Outcome(trainee.digest, params, run.steps_done, epochs, steps.came, Held.early_and_late(held))


def _soak(watched: Watched, members: int, plan: Plan, interrupts: int, rng: random.Random) -> list[Outcome]:
    """All befalls members as soon as so many are in that there may be one less."""
    strike(watched, FaultInjector(plan, members, watched.pid, folder=watched.folder), members, _AWAY)
    for _ in range(interrupts):
        time.sleep(rng.expovariate(1 / _MEAN_OF_INTERRUPTS_S))
        counted = watched.counted()
        os.kill(watched.pid(rng.randrange(members)), signal.SIGUSR1)
        if rng.random() > _AT_ONCE:
            watched.wait(lambda counted=counted: watched.counted() > counted + 1)  # type: ignore[misc]
    ended: list[Outcome] = watched.end()
    return ended


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.elastic.soak")
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--stops", type=int, default=0)
    parser.add_argument("--interrupts", type=int, default=0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--plan", help="these faults instead")
    given = parser.parse_args()
    began = time.monotonic()
    print(f"seed {given.seed}", flush=True)
    counts: dict[Kind, int] = {"kill": given.kills, "stop": given.stops}
    plan = Plan.drawn(given.members, counts, seed=given.seed, mean_s=_MEAN_S, spared=[1])
    plan = plan if given.plan is None else Plan.parse(given.plan)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Ranks(_rank, given.members, folder) as ranks:
            rng, watched = random.Random(given.seed), Watched(ranks, folder)
            ended = _soak(watched, given.members, plan, given.interrupts, rng)
        lives = len(list(folder.glob("steps-*")))
    spared = ended[1]
    expected = trained(Plan(), 0, spared.steps_done, given.members, lr=0.05).params
    apart = (torch.tensor(spared.params, dtype=torch.float64) - expected).abs().max()
    seconds = time.monotonic() - began
    kills = sum(len(fault.members) for fault in plan.faults if fault.kind == "kill")
    long = sum(fault.kind == "stop" and fault.seconds > 1 for fault in plan.faults)
    print(f"{lives} lives, of which members, kills and long stops explain {given.members + kills + long}")
    print(f"{len(plan.faults)} faults, {kills} kills, {seconds:.0f} s")
    came = sum(one.interrupts for one in ended)
    print(f"{given.interrupts} interrupts were sent, and {came} came within a step")
    print(f"{spared.steps_done} steps, rank 1 was in {spared.epochs} groups")
    print(f"models equal: {len({(one.digest, one.steps_done) for one in ended}) == 1}")
    print(f"from a run in which nobody dies: {float(apart):.1e}")
    print(f"rank 1 held, with all in and the store, first and last: {spared.held}")


if __name__ == "__main__":
    main()
