"""Seconds per step of the three tasks: DDP and `tweed.attach` on Gloo and on tweed, and no exchange."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

import tweed
from bench import networks
from bench.run import Launch, Measurement, Row, forked, timings
from tweed.data import Arrays, Split
from tweed.systems.harness.benchmark import Config, Contender, benchmark
from tweed.testbed import LiveNetwork, Network
from tweed.train.shard import optimizer_step
from tweed.train.tasks import row, task
from tweed.train.tasks.base import targets

#: Shape of a sample and number of classes, by task. What is in a sample makes no difference to a step's time.
SHAPES = {"fashion-mnist": ((28, 28), 10), "digits": ((8, 8), 10), "shakespeare": ((64,), 65)}
PARTS = tuple(f"training step of {name}" for name in SHAPES)
FULL = Config(10, 2.0, 30, 400)
QUICK = Config(3, 0.3, 6, 60)
_SLOW_NETWORK = "rate=1gbit"
_SLOW_TASK = "fashion-mnist"


def steps(ranks: int, config: Config) -> Iterator[Row]:
    """Rows of all tasks on this host, and of one between namespaces; `bytes` is the size of the gradients."""
    yield from _timed(ranks, tuple(SHAPES), config, forked)
    network = Network.parse(_SLOW_NETWORK)
    yield from networks.on_network(network, lambda bed: _between(bed, config))


def _between(bed: LiveNetwork, config: Config) -> Iterator[Row]:
    return _timed(bed.size, (_SLOW_TASK,), config, networks.inside(bed))


def _timed(ranks: int, tasks: tuple[str, ...], config: Config, launch: Launch) -> Iterator[Row]:
    return timings(_steps, ranks, tasks, config, launch=launch)


def _steps(rank: int, ranks: int, tasks: tuple[str, ...], config: Config) -> list[Measurement]:
    gloo = dist.new_group(backend="gloo")
    return [_steps_of(name, gloo, config) for name in tasks]


def _steps_of(name: str, gloo: Any, config: Config) -> Measurement:
    sides: dict[str, Callable[[nn.Module, Optimizer], nn.Module]] = {
        "no exchange": lambda model, optimizer: model,
        "DDP on Gloo": lambda model, optimizer: DistributedDataParallel(model, process_group=gloo),
        "attach on Gloo": lambda model, optimizer: attached(model, optimizer, gloo),
        "DDP on tweed": lambda model, optimizer: DistributedDataParallel(model),
        "attach on tweed": lambda model, optimizer: attached(model, optimizer, None),
    }
    contenders = [Contender(side, stepper(name, tie)) for side, tie in sides.items()]
    size_bytes = sum(4 * param.numel() for param in task(name).model(_samples(name)).parameters())
    return Measurement(f"training step of {name}", size_bytes, benchmark(contenders, config, lockstep=False))


def attached(model: nn.Module, optimizer: Optimizer, group: Any) -> nn.Module:
    """The model of a plain loop, which `attach` makes exchange over this group."""
    tweed.attach(model, optimizer, group=group)
    return model


def stepper(name: str, tie: Callable[[nn.Module, Optimizer], nn.Module]) -> Callable[[], object]:
    arrays = _samples(name)
    model = task(name).model(arrays)
    optimizer = task(name).optimizer(model.parameters(), 1e-3)
    tied = tie(model, optimizer)
    x, y = task(name).inputs(arrays.train.x), targets(arrays.train.y)

    return lambda: optimizer_step(optimizer, lambda: F.cross_entropy(tied(x), y))


def _samples(name: str) -> Arrays:
    """One batch of the task's shapes, drawn by chance: no data need be there."""
    shape, classes = SHAPES[name]
    draw, count = np.random.default_rng(0), row(name).batch_size
    x = draw.integers(0, classes, (count, *shape), dtype=np.uint8)
    y = x if len(shape) == 1 else draw.integers(0, classes, count, dtype=np.uint8)
    batch = Split(x, y)
    return Arrays(batch, batch, np.zeros(count, np.int64), classes)
