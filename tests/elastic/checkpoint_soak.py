"""Kills members while they write checkpoints, one or all, and goes on with another number of them.

    python -m tests.elastic.checkpoint_soak --kills 100 --seed 3
    python -m tests.elastic.checkpoint_soak --kills 20 --disks 0.5 --seed 3

Faults are as `tweed.testbed.faults` has them, a plan for each number of members; `--disks` is the chance that
before the last kill the disk of one of them is full for half a second. After all are killed the checkpoint
that counts is read, and compared with a run in which nobody dies.
"""

from __future__ import annotations

import argparse
import random
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from tests.elastic.trains import Trainee, sampler, stores
from tests.simulate.test_elastic import gradient
from tweed.elastic import Checkpoints
from tweed.testbed import Failed, RankFailed, Ranks
from tweed.testbed.fault_injector import FaultInjector
from tweed.testbed.faults import Fault, Plan
from tweed.train.folder import latest

#: Steps from one kill to the next, and seconds in which they come.
_LEAST, _MOST, _PATIENCE_S = 3, 15, 60.0
_FULL_S = 0.5


class Undisturbed:
    """The parameters of one process alone; steps are asked for in order."""

    def __init__(self) -> None:
        self._trainee, self._sampler = Trainee(), sampler()

    def at(self, step: int) -> Tensor:
        """After so many steps."""
        params = self._trainee.params
        while self._sampler.step < step:
            deal = self._sampler.deal(["alone"])
            samples = self._sampler.order.samples(deal.share("alone"))
            params.grad = gradient(params.detach(), samples) / len(samples)
            self._trainee.optimizer.step()
            self._sampler = self._sampler.counted(deal)
        return params.detach()


def drawn(kills: int, disks: float, seed: int) -> Iterator[tuple[int, Plan]]:
    """Numbers of members, and what befalls them: in the end all are killed."""
    draw = random.Random(seed)
    while kills > 0:
        size, faults = draw.randint(1, 4), list[Fault]()
        living = list(range(size))
        if size > 2 and draw.random() < 0.5:
            victim = living.pop(draw.randrange(size))
            faults.append(Fault("kill", (victim,), after_steps=draw.randint(_LEAST, _MOST)))
            kills -= 1
        if disks and draw.random() < disks:
            victim, steps = draw.choice(living), draw.randint(_LEAST, _MOST)
            faults.append(Fault("disk", (victim,), _FULL_S, after_steps=steps))
        faults.append(Fault("kill", tuple(living), after_steps=draw.randint(_LEAST, _MOST)))
        kills -= 1
        yield size, Plan(tuple(faults))


def soak(folder: Path, plans: Iterable[tuple[int, Plan]]) -> float:
    """How far, at most, a checkpoint was from the undisturbed run: the largest difference of a parameter.

    Raises: AssertionError if one is of another step than it says.
    """
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    undisturbed, most = Undisturbed(), 0.0
    for number, (size, plan) in enumerate(plans):
        with Ranks(stores, size, store.port, folder, f"{number}", 1 << 30) as ranks:
            _strike(ranks, FaultInjector(plan, size, ranks.pid, full_disks=True), folder, plan)
        step, found = latest(folder), Checkpoints(folder, 2).load()
        assert found is not None and found.tree["where"][0] == step
        apart = (found.tree["kept"]["model"]["0"] - undisturbed.at(step)).abs().max()
        most = max(most, float(apart))
    return most


def _strike(ranks: Ranks, injector: FaultInjector, folder: Path, plan: Plan) -> None:
    """All of them, by the steps that are stored."""
    end = time.monotonic() + _PATIENCE_S
    with injector:
        while not injector.done:
            for event in ranks.poll(0.001):
                if isinstance(event, Failed) and event.error is not None:
                    raise RankFailed(ranks.blame([event]))
            if injector.turn(latest(folder)) is not None:
                end = time.monotonic() + _PATIENCE_S
            if time.monotonic() > end:
                for rank in ranks.running():
                    ranks.kill(rank, signal.SIGUSR1)  # it prints its stacks
                ranks.poll(0.5)
                raise TimeoutError(
                    f"no more steps within a minute after {len(injector.log)} faults of `{plan}`"
                )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.elastic.checkpoint_soak")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--disks", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    given = parser.parse_args()
    torch.set_num_threads(1)
    began = time.monotonic()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        apart = soak(Path(name), drawn(given.kills, given.disks, given.seed))
        step = latest(Path(name))
    print(f"{given.kills} kills, {step} steps, {time.monotonic() - began:.0f} s: no checkpoint was damaged")
    print(f"from a run in which nobody dies: {apart:.1e}")


if __name__ == "__main__":
    main()
