"""A worker of `torchrun --rdzv-backend tweed`: a plain loop, whose end is written where the test looks. Of an
agent with several all are one member, over which FSDP2 spreads the model."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import tweed
from tests.elastic.loops import BATCH, Trainee, dataset
from tweed.elastic import Elastic
from tweed.files import write_atomic


def work(folder: Path) -> None:
    """Trains until it is to leave, or `folder` has a file "stop"."""
    name, processes, stop = os.environ["AGENT"], int(os.environ["WORLD_SIZE"]), [False]
    if processes > 1:
        dist.init_process_group("tweed")
    trainee = Trainee(ord(name) - ord("a"), processes=processes)
    with (folder / f"{name} lives").open("a") as lives:
        print(os.getpid(), file=lives)
    elastic = Elastic(1, 4, witnesses=(os.environ["WITNESS"],))  # of two members one alone has no majority
    run = tweed.attach(trainee.model, trainee.optimizer, elastic=elastic)
    run.keep("schedule", trainee.schedule)
    with run, run.leaving_on(signal.SIGTERM):
        for x, y in run.batches(dataset(), 10**6, BATCH, seed=3, check_every=1):
            trainee.learn(x, y)
            write_atomic(folder / f"{name} now", f"{run.steps_done} {len(run.members)}")
            stop[0] = (folder / "stop").exists()
            if processes > 1:
                dist.broadcast_object_list(stop)
            if stop[0]:
                break
        torch.save((run.steps_done, run.epochs, trainee.flat), folder / f"{name} end")


if __name__ == "__main__":
    torch.set_num_threads(1)
    work(Path(sys.argv[1]))
