"""Kills live members by SIGKILL while they train, starts them again, and looks at what is left.

    python -m tests.elastic.soak --members 8 --kills 500 --seed 7
    python -m tests.elastic.soak --members 8 --kills 50 --stops 50 --seed 7

Stops are by SIGSTOP, half of them for 0.3 s, which is to evict nobody, the others for 2 s, which evicts.
Members are processes of this host, which join again when they were killed. One of them is spared: what it
holds of memory, descriptors and threads after ten epochs is compared with what it holds at the end. The model
is compared with that of a run in which nobody dies.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import signal
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import torch

from bench.watched import Watched, Written, control
from tests.elastic.trains import Trainee, sampler
from tests.simulate.test_elastic import trained
from tweed.elastic import ElasticRun
from tweed.testbed import Ranks
from tweed.testbed.lives import kill, lived

#: That many of eight may be away at a time, by their share.
_AWAY = 0.25
_COMPUTE_S = 0.01
#: Of stops.
_SHORT_S, _LONG_S = 0.3, 2.0


class Held(NamedTuple):
    """What a process holds."""

    kilobytes: int
    descriptors: int
    threads: int

    @classmethod
    def now(cls) -> Held:
        """Of this one."""
        kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return cls(kilobytes, *(len(os.listdir(f"/proc/self/{what}")) for what in ("fd", "task")))


class Outcome(NamedTuple):
    """Of one member, at the end."""

    digest: str
    params: list[float]
    counted: int
    epochs: int
    early: Held | None
    late: Held


def _rank(rank: int, size: int, folder: Path) -> Outcome:
    outcome: Outcome = lived(_life, folder, rank, size, folder)
    return outcome


def _life(life: int, rank: int, size: int, folder: Path) -> Outcome:
    trainee, early = Trainee(lr=0.05), None
    elastic = control(life, rank, size, size, folder)
    run = ElasticRun(elastic, sampler(), trainee.keep, check_every=1)
    with Written(folder, rank, life) as written:
        while not written.over(run.counted):
            begin = time.monotonic()
            trainee.step(run, lambda: time.sleep(_COMPUTE_S))
            written.step(run, begin)
            if early is None and len(run.epochs) > 10:
                early = Held.now()
    run.finish()
    elastic.close()
    return Outcome(trainee.digest, trainee.params.tolist(), run.counted, len(run.epochs), early, Held.now())


def _soak(watched: Watched, members: int, faults: list[float | None], draw: random.Random) -> list[Outcome]:
    """All but rank 1 are killed, or stopped for so many seconds, as soon as so many are in that there may be
    one less."""
    least = members - max(1, int(_AWAY * members)) + 1
    struck_s = dict.fromkeys(range(members), 0.0)
    for stop_s in faults:
        time.sleep(draw.expovariate(2.0))
        victim = draw.choice([rank for rank in _alive(watched, struck_s, least) if rank != 1])
        kill(watched.folder, victim, signal.SIGKILL if stop_s is None else signal.SIGSTOP)
        if stop_s is not None:
            time.sleep(stop_s)
            kill(watched.folder, victim, signal.SIGCONT)
        struck_s[victim] = time.monotonic()
    watched.settled(members, time.monotonic())
    ended: list[Outcome] = watched.end()
    return ended


def _alive(watched: Watched, struck_s: dict[int, float], least: int) -> list[int]:
    """Waits until so many have ended a step within the last half second, and since they were struck. Returns
    which."""
    found: list[int] = []

    def enough() -> bool:
        now = time.monotonic()
        last = {rank: watched.steps(rank)[-1:] for rank in struck_s}
        ends = {rank: steps[0].end for rank, steps in last.items() if steps}
        found[:] = [rank for rank, end in ends.items() if end > max(now - 0.5, struck_s[rank])]
        return len(found) >= least

    watched.wait(enough)
    return found


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.elastic.soak")
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--stops", type=int, default=0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    given = parser.parse_args()
    began = time.monotonic()
    print(f"seed {given.seed}", flush=True)
    draw = random.Random(given.seed)
    stops = [_SHORT_S if place % 2 else _LONG_S for place in range(given.stops)]
    faults = [*stops, *[None] * given.kills]
    draw.shuffle(faults)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Ranks(_rank, given.members, folder) as ranks:
            ended = _soak(Watched(ranks, folder), given.members, faults, draw)
        lives = len(list(folder.glob("steps-*")))
    spared = ended[1]
    expected = trained(0, 0, spared.counted, given.members, lr=0.05).params
    apart = (torch.tensor(spared.params, dtype=torch.float64) - expected).abs().max()
    seconds = time.monotonic() - began
    needed = given.members + given.kills + stops.count(_LONG_S)
    print(f"{lives} lives, of which members, kills and long stops explain {needed}")
    print(f"{given.kills} kills, {given.stops} stops, {seconds:.0f} s")
    print(f"{spared.counted} steps, {spared.epochs} epochs")
    print(f"models equal: {len({(one.digest, one.counted) for one in ended}) == 1}")
    print(f"from a run in which nobody dies: {float(apart):.1e}")
    print(f"rank 1 held, after ten epochs and at the end: {spared.early}, {spared.late}")


if __name__ == "__main__":
    main()
