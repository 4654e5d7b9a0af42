"""Time to equal accuracy on disturbed clusters, on a virtual clock: through a hub, or in step.

    outcome = train(Config("fashion-mnist", Place("C3", "N-dynamic", 0.02), named_strategy("mlfabric")))
    outcome.reached_s["0.78"]

A strategy with a hub is walked by the machines that run live (`simulate.hub_training`). One without is in
step: its steps take what `simulate.in_step` says, and a step of gradients as they are is one of the mean over
the samples of all who take part, which is the same to rounding; with a codec each worker packs its own.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import torch
import torch.nn.functional as F
from torch.optim import SGD, Optimizer

from tweed.compress import Spec
from tweed.simulate.disturbances import COMPUTERS, NETWORKS
from tweed.simulate.hub import Conditions
from tweed.simulate.hub_training import HubTraining, Members
from tweed.simulate.in_step import InStep
from tweed.simulate.member_steps import SampleLoss
from tweed.simulate.workers import Workers
from tweed.strategy import Strategy
from tweed.systems.harness.hub_training import perceptron
from tweed.train.shard import Shard

#: Evaluations in a row whose mean counts.
SMOOTH = 10
#: Delays are counted in classes of so many commits.
CLASS = 5


@dataclass(frozen=True, slots=True)
class Place:
    """What a cluster is like.

    Attributes:
      computers, network: names in `COMPUTERS` and `NETWORKS` of `simulate.disturbances`.
      transfer: how long the model takes over a link at its full rate, as a share of an undisturbed step.
    """

    computers: str
    network: str
    transfer: float

    def __str__(self) -> str:
        return f"{self.computers}, {self.network}, {self.transfer:.3g}"


@dataclass(frozen=True, slots=True)
class Config:
    """One training. An undisturbed step takes a second.

    Attributes:
      task: a name in `tweed.train.tasks.TASKS`.
      place: see there.
      strategy: with a hub, or in step.
      builder, spare: of a strategy without a hub: see `simulate.in_step.InStep`.
      lr, momentum: of plain SGD, the hub's or that of all.
      batch: samples of a step.
      members: who compute; a hub is not among them.
      seed: of the model, the samples and the disturbances.
      targets: accuracies whose times are kept; the last one ends the training.
      contributions: after which it ends, too.
      every_s: seconds between evaluations.
      test_samples: from the first of the test set.
    """

    task: str
    place: Place
    strategy: Strategy
    builder: str = "ring"
    spare: int = 0
    lr: float = 0.1
    momentum: float = 0.0
    batch: int = 4
    members: int = 30
    seed: int = 0
    targets: tuple[float, ...] = (0.78,)
    contributions: int = 5_000
    every_s: float = 2.0
    test_samples: int = 2_500


@dataclass(slots=True)
class Outcome:
    """What came of it, as plain values.

    Attributes:
      reached_s: by target, seconds to the first evaluation at which it and those before, `SMOOTH` in all,
        have so much in the mean; no entry: it was not reached.
      accuracy: the mean of the last `SMOOTH` evaluations.
      seconds, updates, counted: at the end: the clock, the hub's or the group's steps, contributions in them.
      curve: seconds and accuracy, at each 10th evaluation.
      delay, deviation, most_delay: versions between a contribution's base and its commit: the mean, the
        standard deviation, the most.
      delays: how many were in each `CLASS` of delays.
      dropped: contributions that the order let go.
      payload: what has begun to move to the hub, in models.
    """

    reached_s: dict[str, float] = field(default_factory=dict)
    accuracy: float = 0.0
    seconds: float = 0.0
    updates: int = 0
    counted: int = 0
    curve: list[tuple[float, float]] = field(default_factory=list)
    delay: float = 0.0
    deviation: float = 0.0
    most_delay: int = 0
    delays: list[int] = field(default_factory=list)
    dropped: int = 0
    payload: float = 0.0


def train(config: Config) -> Outcome:
    """Trains until the last target is reached. Cost: the members' backward passes, on one thread."""
    torch.set_num_threads(1)
    dealt = (config.members, "iid", config.seed)
    shards = [Shard(config.task, config.batch, one, *dealt) for one in range(config.members)]
    torch.manual_seed(config.seed)
    outcome = Outcome()
    if config.strategy.hub is not None:
        _through_hub(config, shards, outcome)
    else:
        models = _packed(config, shards) if config.strategy.compress is not None else _dense(config, shards)
        _in_step(config, shards[0], models, outcome)
    return outcome


@dataclass(slots=True)
class _Watch:
    """Looks at accuracies as they come."""

    config: Config
    outcome: Outcome
    recent: list[float] = field(default_factory=list)

    def saw(self, seconds: float, accuracy: float) -> None:
        """Notes an evaluation, and which targets it reaches."""
        self.recent = [*self.recent[1 - SMOOTH :], accuracy]
        smooth, outcome = statistics.fmean(self.recent), self.outcome
        outcome.accuracy, outcome.seconds = smooth, seconds
        if round(seconds / self.config.every_s) % 10 == 1:
            outcome.curve.append((seconds, round(accuracy, 4)))
        for target in self.config.targets:
            if len(self.recent) == SMOOTH and smooth >= target:
                outcome.reached_s.setdefault(str(target), seconds)

    @property
    def goes_on(self) -> bool:
        """Whether there is more to see."""
        short = self.outcome.counted < self.config.contributions
        return short and str(self.config.targets[-1]) not in self.outcome.reached_s


def _accuracy(shard: Shard, model: torch.nn.Module, samples: int) -> float:
    _, right, seen = shard.scores(model, samples).tolist()
    return float(right / seen)


def _optimizer(config: Config) -> Callable[[list[torch.nn.Parameter]], Optimizer]:
    return lambda params: SGD(params, lr=config.lr, momentum=config.momentum)


# Through a hub


class _Clocked:
    """How long tasks take, by the clock of a run that is made with it."""

    def __init__(self, config: Config) -> None:
        self._config, self._computers = config, COMPUTERS[config.place.computers]
        self.now: Callable[[], float] = lambda: 0.0

    def __call__(self, member: int, task: int) -> float:
        config = self._config
        return self._computers.steps(config.seed, config.members, member, task, self.now())


def _through_hub(config: Config, shards: list[Shard], outcome: Outcome) -> None:
    model, load = perceptron(shards[0].arrays), NETWORKS[config.place.network]
    numbytes = 4 * sum(param.numel() for param in model.parameters())
    rate, compute_s = numbytes / config.place.transfer, _Clocked(config)
    conditions = Conditions(
        config.members,
        compute_s,
        rate,
        rates=lambda member: (rate, rate),
        shares=lambda node, now: load.share(config.seed, node, now),
        seed=config.seed,
    )

    def drawn(member: int, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
        return shards[member].drawn(shards[member].batch(batch))

    members = Members(SampleLoss(drawn, F.cross_entropy), lambda params: SGD(params, lr=0.0))
    training = HubTraining(model, config.strategy, conditions, members, _optimizer(config))
    run, watch = training.run, _Watch(config, outcome)
    compute_s.now = lambda: run.now
    for mark in count(1):
        run.until(seconds=mark * config.every_s)
        outcome.counted, outcome.updates = len(run.delays), len(run.steps)
        watch.saw(mark * config.every_s, _accuracy(shards[0], training.model, config.test_samples))
        if not watch.goes_on:
            break
    _delays(run.delays, outcome)
    outcome.dropped = sum(one.last for one in run.hub.members.values()) - outcome.counted
    outcome.payload = run.payload_bytes / numbytes


def _delays(delays: list[int], outcome: Outcome) -> None:
    outcome.delay, outcome.deviation = statistics.fmean(delays), statistics.pstdev(delays)
    outcome.most_delay = max(delays)
    outcome.delays = np.bincount(np.array(delays) // CLASS).tolist()


# In step

#: Of who takes part, takes a step; returns the model.
_Step = Callable[[int, tuple[int, ...]], torch.nn.Module]


def _in_step(config: Config, shard: Shard, take: _Step, outcome: Outcome) -> None:
    place, watch, now, marks = config.place, _Watch(config, outcome), 0.0, count(1)
    computers, load = COMPUTERS[place.computers], NETWORKS[place.network]
    transfer_s = place.transfer * _share(config.strategy)
    steps = InStep(computers, load, config.members, transfer_s, config.seed, config.builder, config.spare)
    accuracy, mark = 0.0, next(marks) * config.every_s
    for step in count():
        taken = steps.take(step, now)
        while mark < taken.ends_s and watch.goes_on:
            watch.saw(mark, accuracy)
            mark = next(marks) * config.every_s
        if not watch.goes_on:
            return
        now = taken.ends_s
        accuracy = _accuracy(shard, take(step, taken.members), config.test_samples)
        outcome.counted += len(taken.members)
        outcome.updates += 1


def _share(strategy: Strategy) -> float:
    """The bytes of what is packed, as a share of 32 bits per number."""
    if strategy.memory is None:
        return 1.0
    [codec] = strategy.memory.parts.values()
    numel = 2**16
    return float(codec.packet_bytes(Spec(((numel,),)))) / (4 * numel)


def _dense(config: Config, shards: list[Shard]) -> _Step:
    model = perceptron(shards[0].arrays)
    optimizer = _optimizer(config)([*model.parameters()])

    def take(step: int, members: tuple[int, ...]) -> torch.nn.Module:
        picked = np.concatenate([shards[member].batch(step) for member in members])
        optimizer.zero_grad()
        shards[0].loss(model, picked).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return model

    return take


def _packed(config: Config, shards: list[Shard]) -> _Step:
    workers = Workers(perceptron(shards[0].arrays), _optimizer(config), config.strategy, config.members)

    def take(step: int, members: tuple[int, ...]) -> torch.nn.Module:
        assert len(members) == config.members  # who packs takes part in each step
        workers.step(lambda rank, model: shards[rank].loss(model, shards[rank].batch(step)))
        return workers.all[0].model

    return take
