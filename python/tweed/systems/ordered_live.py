"""The ranks' part of ordered transmission's live experiment: full gradients of a network on the digits, in
real time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from tweed.strategy import Strategy


@dataclass(frozen=True, slots=True)
class Task:
    """What ranks train.

    Attributes:
      lr: of plain gradient descent.
      steps: to take.
      goal: loss on all samples at which the clock is read.
      hidden: width of the network, which sets the size of a message.
    """

    lr: float = 0.3
    steps: int = 80
    goal: float = 0.5
    hidden: int = 128


def train(rank: int, size: int, strategy: Strategy, task: Task) -> dict[str, Any]:
    """Trains. Returns seconds, messages with content, and the seconds and messages at which the goal was
    reached."""
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from torch import nn

    import tweed

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, task.hidden), nn.ReLU(), nn.Linear(task.hidden, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=task.lr)
    run = tweed.attach(model, optimizer, strategy)
    workers = size - (strategy.collective is not None)
    x, y = _samples(rank - (size - workers), workers)
    whole = _samples(0, 1)
    seen: dict[str, Any] = {"goal_s": None, "goal_steps": None, "said": None}
    dist.barrier()
    began = time.monotonic()
    for step in range(task.steps):
        if not run.serves:
            F.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and seen["goal_s"] is None and step % 5 == 4:
            with torch.no_grad():
                loss = float(F.cross_entropy(model(whole[0]), whole[1]))
            if loss <= task.goal:
                seen |= {"goal_s": time.monotonic() - began, "goal_steps": step + 1}
    seen |= {
        "seconds": time.monotonic() - began,
        "said": getattr(getattr(run._exchange, "reducer", None), "sent", None),
    }
    dist.barrier()
    run.detach()
    return seen


def _samples(worker: int, workers: int) -> tuple[Any, Any]:
    """A worker's pictures, of few classes each, so that gradients differ."""
    import numpy as np
    import torch

    from tweed.data import Partition, deal, load

    arrays = load("digits")
    labels = arrays.train.y.astype(np.int64)
    hand = deal(labels, workers, Partition.parse("dirichlet:0.3"), seed=0)[max(0, worker)]
    pictures = arrays.train.x[hand].reshape(len(hand), 64).astype(np.float32) / 16
    return torch.from_numpy(pictures), torch.from_numpy(labels[hand])
