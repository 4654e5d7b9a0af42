"""Measures how long DDP of a small model waits for a rank that stands still.

    python -m tests.faults.ddp                     each rank in turn, in all ways, with and without metrics

The deadline is two seconds. The calls are small, and nobody waits for them within the engine.
"""

from __future__ import annotations

import itertools
import os
import signal
import time

import torch
import torch.distributed as dist

from tests.faults.ring import Outcome, caught, endings
from tweed.forkserver.server import environment
from tweed.testbed import Ranks

DEADLINE_S = 2.0
RANKS = 3


def trains(rank: int, size: int, culprit: int, how: str) -> tuple[Outcome, float]:
    """How the step ended in which the culprit stands still, and after how many seconds."""
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))

    def step() -> None:
        model(torch.ones(2, 4)).sum().backward()

    for _ in range(6):
        step()
    dist.barrier()
    if rank == culprit and how == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    while rank == culprit:  # until the launcher ends it
        signal.pause()
    began = time.monotonic()
    outcome = caught(step)
    return outcome, outcome.when - began


def variables(transport: str, metrics: str) -> dict[str, str]:
    """What the ranks are told."""
    deadline = str(DEADLINE_S)
    return {"TWEED_TRANSPORT": transport, "TWEED_METRICS": metrics, "TWEED_DEADLINE": deadline}


def main() -> None:
    """The command."""
    ways = itertools.product(["auto", "tcp"], ["1", "0"], ["stopped", "elsewhere"], range(RANKS))
    for transport, metrics, how, culprit in ways:
        with (
            environment(variables(transport, metrics)),
            Ranks(trains, RANKS, culprit, how, backend="tweed") as ranks,
        ):
            for (kind, text, _), after_s in endings(ranks, RANKS - 1).values():
                named = f"rank {culprit} on " in text
                print(
                    f"{transport:4} metrics={metrics} rank {culprit} {how:9}: {kind} after {after_s:.2f} s"
                    f"{'' if named else ', not named'}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
