"""Kills members by SIGKILL while they write checkpoints, one or all, and goes on with another number of them.

    python -m tests.elastic.checkpoint_soak --kills 100 --seed 3

After each kill the checkpoint that counts is read, and compared with a run in which nobody dies.
"""

from __future__ import annotations

import argparse
import random
import signal
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from tests.elastic.trains import Trainee, sampler, stores
from tests.simulate.test_elastic import gradient
from tweed.elastic import Checkpoints
from tweed.testbed import Failed, RankFailed, Ranks
from tweed.train.folder import latest

#: Steps from one kill to the next, and seconds in which they come.
_LEAST, _MOST, _PATIENCE_S = 3, 15, 60.0


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


def soak(folder: Path, kills: int, draw: random.Random) -> float:
    """How far, at most, a checkpoint was from the undisturbed run: the largest difference of a parameter.

    Raises: AssertionError if one is of another step than it says.
    """
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    undisturbed, most, done = Undisturbed(), 0.0, 0
    while done < kills:
        size = draw.randint(1, 4)
        with Ranks(stores, size, store.port, folder, f"{done}", 1 << 30) as ranks:
            _wait(ranks, folder, draw)
            if size > 2 and draw.random() < 0.5:
                ranks.kill(draw.randrange(size))
                done += 1
                _wait(ranks, folder, draw)
        done += 1
        step, found = latest(folder), Checkpoints(folder, 2).load()
        assert found is not None and found.tree["where"]["step"] == step
        apart = (found.tree["kept"]["model"]["0"] - undisturbed.at(step)).abs().max()
        most = max(most, float(apart))
    return most


def _wait(ranks: Ranks, folder: Path, draw: random.Random) -> None:
    """Until some steps more are stored."""
    until = latest(folder) + draw.randint(_LEAST, _MOST)
    end = time.monotonic() + _PATIENCE_S
    while latest(folder) < until:
        for event in ranks.poll(0.001):
            if isinstance(event, Failed) and event.error is not None:
                raise RankFailed(ranks.blame([event]))
        if time.monotonic() > end:
            for rank in ranks.running():
                ranks.kill(rank, signal.SIGUSR1)  # it prints its stacks
            ranks.poll(0.5)
            raise TimeoutError(f"step {until} is not stored within a minute")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.elastic.checkpoint_soak")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    given = parser.parse_args()
    torch.set_num_threads(1)
    began = time.monotonic()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        apart = soak(Path(name), given.kills, random.Random(given.seed))
        step = latest(Path(name))
    print(f"{given.kills} kills, {step} steps, {time.monotonic() - began:.0f} s: no checkpoint was damaged")
    print(f"from a run in which nobody dies: {apart:.1e}")


if __name__ == "__main__":
    main()
