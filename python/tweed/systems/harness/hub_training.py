"""Whole trainings through a hub on a virtual clock: what devices with slow links learn in a given time."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import SGD

from tweed.data import Arrays
from tweed.report.notes import Line
from tweed.rng import uniform
from tweed.simulate.attacks import Attack, HostileLayers, LabelFlip
from tweed.simulate.hub import Conditions
from tweed.simulate.hub_training import HubTraining, Members
from tweed.simulate.member_steps import SampleLoss
from tweed.strategy import Strategy
from tweed.train.shard import Shard

#: Evaluations in a row whose mean counts: a model that is trained on other labels every round jumps.
SMOOTH = 5


@dataclass(frozen=True, slots=True)
class Devices:
    """What devices and their links are like. Each has its own, evenly spread over a logarithmic scale.

    Attributes:
      count: how many.
      task_s: what the quickest and the slowest take for a task at least; to that comes an exponential time,
        `jitter` times as long in the mean.
      up, down: bytes per second of the slowest and the quickest link.
    """

    count: int = 100
    task_s: tuple[float, float] = (1.0, 10.0)
    jitter: float = 0.5
    up: tuple[float, float] = (6_250.0, 62_500.0)
    down: tuple[float, float] = (62_500.0, 625_000.0)

    def conditions(self, seed: int) -> Conditions:
        """As drawn by a seed."""

        def drawn(ends: tuple[float, float], *which: int) -> float:
            low, high = ends
            return low * math.exp(math.log(high / low) * uniform(seed, *which))

        def compute_s(member: int, task: int) -> float:
            jitter = -self.jitter * math.log(1 - uniform(seed, 2, member, task))
            return drawn(self.task_s, 1, member) * (1 + jitter)

        rates = [(drawn(self.up, 3, one), drawn(self.down, 4, one)) for one in range(self.count)]
        return Conditions(self.count, compute_s, rates=rates.__getitem__, seed=seed)


@dataclass(frozen=True, slots=True)
class Config:
    """One training.

    Attributes:
      task: a name in `tweed.train.tasks.TASKS`.
      strategy: with a hub.
      seconds: of the virtual clock.
      updates: after which it ends, too.
      server_lr: of the hub's SGD.
      lr, momentum, batch: of a device's SGD.
      devices: see there.
      partition: as for `tweed.data.Partition.parse`.
      every_s: seconds between evaluations.
      seed: of the model, the partition, the batches and the devices.
      hostile, attack: as for `simulate.hub_training.Members`.
      test_samples: from the first of the test set.
      trusted: samples of a batch that the hub trusts, drawn from the rest of the test set.
      pool: so many samples there are to draw from; None: all of the rest.
      validators: who share the pool, batch k being that of validator `(k - 1) % validators`.
      alone: devices are the validators and learn from the pool: what the hub could do without workers.
      layers: as for `simulate.hub_training.Members`.
    """

    task: str
    strategy: Strategy
    seconds: float
    server_lr: float = 1.0
    lr: float = 0.1
    momentum: float = 0.0
    batch: int = 10
    devices: Devices = Devices()
    partition: str = "shards:2"
    every_s: float = 5.0
    seed: int = 0
    hostile: int = 0
    attack: Attack | None = None
    test_samples: int = 2_500
    updates: float = math.inf
    trusted: int = 0
    pool: int | None = None
    validators: int = 1
    alone: bool = False
    layers: HostileLayers | None = None


@dataclass(slots=True)
class Outcome:
    """What came of it, as plain values.

    Attributes:
      curve: seconds, the model's version, its accuracy and all bytes so far at each evaluation.
      accuracy: at the end, the mean of the last `SMOOTH` evaluations.
      counted: contributions in updates.
      up_share, down_share: of the bytes of as many models.
      delay, most_delay: versions between a contribution's base and its commit, in the mean and at most.
      refused, taken: the shares of honest contributions that did not count, and of hostile ones that did.
    """

    curve: list[tuple[float, int, float, int]] = field(default_factory=list)
    accuracy: float = 0.0
    counted: int = 0
    up_share: float = 0.0
    down_share: float = 0.0
    delay: float = 0.0
    most_delay: int = 0
    refused: float = 0.0
    taken: float = 0.0


def perceptron(arrays: Arrays) -> nn.Module:
    """One hidden layer: small, so that a minute holds thousands of contributions."""
    inputs = math.prod(arrays.train.x.shape[1:])
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, arrays.classes))


def train(config: Config) -> Outcome:
    """Trains and evaluates. Cost: the devices' backward passes, on one thread."""
    torch.set_num_threads(1)
    dealt = (config.devices.count, config.partition, config.seed)
    shards = [Shard(config.task, config.batch, one, *dealt) for one in range(config.devices.count)]
    trusted = _trusted(config, shards[0])

    def drawn(member: int, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
        shard = shards[member]
        inputs, labels = shard.drawn(shard.batch(batch))
        if member >= config.devices.count - config.hostile and isinstance(config.attack, LabelFlip):
            labels = config.attack.labels(labels)
        return inputs, labels

    def validator_loss(member: int, model: nn.Module, batch: int) -> torch.Tensor:
        return trusted(model, batch * config.validators + member + 1)

    torch.manual_seed(config.seed)
    members = Members(
        validator_loss if config.alone else SampleLoss(drawn, F.cross_entropy),
        lambda params: SGD(params, lr=config.lr, momentum=config.momentum),
        lambda member: float(len(shards[member].samples)),
        config.hostile,
        config.attack,
        config.layers,
    )
    training = HubTraining(
        perceptron(shards[0].arrays),
        config.strategy,
        config.devices.conditions(config.seed),
        members,
        lambda params: SGD(params, lr=config.server_lr),
        trusted if config.trusted else None,
    )
    return _watched(training, config, shards[0])


def _trusted(config: Config, shard: Shard) -> Callable[[nn.Module, int], torch.Tensor]:
    rest = np.arange(config.test_samples, len(shard.arrays.test))[: config.pool]
    parts = [rest[validator :: config.validators] for validator in range(config.validators)]

    def loss(model: nn.Module, number: int) -> torch.Tensor:
        drawn = np.random.default_rng([config.seed, number])
        part = parts[(number - 1) % config.validators]
        return shard.test_loss(model, drawn.choice(part, config.trusted, replace=False))

    return loss


def _watched(training: HubTraining, config: Config, shard: Shard) -> Outcome:
    outcome, run = Outcome(), training.run
    for mark in range(1, int(config.seconds / config.every_s) + 1):
        run.until(updates=config.updates, seconds=mark * config.every_s)
        _, right, count = shard.scores(training.model, config.test_samples).tolist()
        moved = run.payload_bytes + run.model_bytes
        outcome.curve.append((mark * config.every_s, run.hub.version, right / count, moved))
        if run.hub.version >= config.updates:
            break
    outcome.accuracy = statistics.fmean(point[2] for point in outcome.curve[-SMOOTH:])
    outcome.counted = len(run.delays)
    dense = 4.0 * sum(param.numel() for param in training.model.parameters()) * max(1, len(run.delays))
    outcome.up_share, outcome.down_share = run.payload_bytes / dense, run.model_bytes / dense
    outcome.delay = statistics.fmean(run.delays) if run.delays else 0.0
    outcome.most_delay = max(run.delays, default=0)
    first = config.devices.count - config.hostile
    weights = [(one.sender >= first, one.weight) for batch in training.verdicts for one in batch]
    outcome.refused = _share([weight == 0 for hostile, weight in weights if not hostile])
    outcome.taken = _share([weight > 0 for hostile, weight in weights if hostile])
    return outcome


def _share(facts: list[bool]) -> float:
    return sum(facts) / len(facts) if facts else 0.0


def reached_s(line: Line, accuracy: float) -> float | None:
    """Seconds to the first evaluation at which it and those before, `SMOOTH` in all, have so much in the
    mean; None: there is none."""
    curve = line["curve"]
    for end in range(SMOOTH, len(curve) + 1):
        if statistics.fmean(point[2] for point in curve[end - SMOOTH : end]) >= accuracy:
            return float(curve[end - 1][0])
    return None


def accuracy_at(line: Line, place: int, value: float) -> float | None:
    """The mean of the last `SMOOTH` accuracies up to a point; None if there are fewer.

    Args:
      place: entry of the points that counts: 0 for seconds, 1 for the version, 3 for bytes.
      value: which that entry may have at most.
    """
    before = [point[2] for point in line["curve"] if point[place] <= value][-SMOOTH:]
    return statistics.fmean(before) if len(before) == SMOOTH else None
