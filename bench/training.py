"""Seconds per step of the small CNN: DDP on Gloo, DDP on tweed, `tweed.attach`, and no exchange at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

import tweed
from bench.race import Contender, Pace, race
from bench.run import Heat, Row, timings
from tweed.data import Arrays, Split
from tweed.train.tasks import row, task

_TASK = "fashion-mnist"
FULL = Pace(10, 4.0, 50, 400)
QUICK = Pace(3, 0.6, 6, 60)


def steps(ranks: int, pace: Pace) -> Iterator[Row]:
    """Rows of one number of ranks; `bytes` is the size of the gradients."""
    yield from timings(_steps, ranks, pace)


def _steps(rank: int, ranks: int, pace: Pace) -> list[Heat]:
    gloo = dist.new_group(backend="gloo")
    sides: dict[str, Callable[[nn.Module, Optimizer], nn.Module]] = {
        "no exchange": lambda model, optimizer: model,
        "DDP on Gloo": lambda model, optimizer: DistributedDataParallel(model, process_group=gloo),
        "DDP on tweed": lambda model, optimizer: DistributedDataParallel(model),
        "attach on tweed": _attached,
    }
    contenders = [Contender(side, _stepper(tie)) for side, tie in sides.items()]
    size_bytes = sum(4 * param.numel() for param in _model()[0].parameters())
    return [Heat("training step", size_bytes, race(contenders, pace, lockstep=False))]


def _attached(model: nn.Module, optimizer: Optimizer) -> nn.Module:
    tweed.attach(model, optimizer)
    return model


def _stepper(tie: Callable[[nn.Module, Optimizer], nn.Module]) -> Callable[[], None]:
    model, optimizer = _model()
    tied = tie(model, optimizer)
    x, y = torch.rand(row(_TASK).batch_size, 1, 28, 28), torch.arange(row(_TASK).batch_size) % 10

    def step() -> None:
        F.cross_entropy(tied(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _model() -> tuple[nn.Module, Optimizer]:
    """The task's own, which asks the data for the number of classes only: none need be there."""
    none = Split(np.empty(0, np.uint8), np.empty(0, np.uint8))
    arrays = Arrays(none, none, np.empty(0, np.int64), classes=10)
    model = task(_TASK).model(arrays)
    return model, task(_TASK).optimizer(model.parameters(), 1e-3)
