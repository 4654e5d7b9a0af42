"""Live workers that send several messages per step, with stragglers as models have them.

Least squares, whose gradients all codes can carry; a shard is a sleep, as long as `data.coding.times` draws.
And the task digits, beside plain synchronous training.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import tweed
from tweed.cadence import ByShards
from tweed.collective import Server
from tweed.data.coding import halves, lagrange_of
from tweed.data.coding.times import SCHEMES, Seconds, Stragglers
from tweed.exchange.coded_steps.gradients import CodedGradients
from tweed.hooks.run import Run
from tweed.report.notes import Notes
from tweed.strategy import Strategy
from tweed.testbed import run_ranks
from tweed.train.shard import Shard

#: Steps that are not timed, in which processes become warm.
WARM = 5
_FEATURES, _SAMPLES, _LR = 256, 32, 0.1


@dataclass(frozen=True, slots=True)
class Config:
    """What is timed.

    Attributes:
      stragglers: seconds of shards.
      workers: beside the server.
      steps: that are timed.
    """

    stragglers: Stragglers
    workers: int = 8
    steps: int = 60

    def task_s(self, seed: int) -> Seconds:
        """`[WARM + steps, workers]`, seconds per shard."""
        return self.stragglers.task_s(self.workers, WARM + self.steps, seed)


#: By side the cadence, and the scheme of `data.coding.times` that says how long an iteration is to take.
Sides = Mapping[str, tuple[ByShards, str | None]]


def live(notes: Notes, place: str, sides: Sides, config: Config, seed: int) -> None:
    """Lines of kind "live": seconds of an iteration by live ranks, on average, and by the model; messages
    that came too late, per iteration; and how far the model is from that of gradient descent in one place,
    beside its largest value."""
    for side, (cadence, scheme) in sides.items():
        facts = {"kind": "live", "place": place, "side": side, "seed": seed}
        if notes.has(**facts):
            continue
        notes.log(f"live, {place}, seed {seed}: {side}")
        task_s, expected = config.task_s(seed), None
        if scheme is not None:
            known = [SCHEMES[scheme](cadence.load, one, 0.0).seconds for one in task_s[WARM:]]
            expected = fmean(known)
        size, limit_s = 1 + config.workers, 60.0 + 10 * float(task_s.max(axis=1).sum())
        found = run_ranks(_descend, size, cadence, config, seed, backend="tweed", timeout=limit_s)[0]
        notes.add(facts | {"simulated": expected} | found)


def _descend(rank: int, size: int, cadence: ByShards, config: Config, seed: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    problem = _Problem(cadence, size - 1)
    model = nn.Linear(_FEATURES, 1, bias=False)
    nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=_LR)
    run = tweed.attach(model, optimizer, Strategy(cadence=cadence, collective=Server(0)))
    task_s, ends = config.task_s(seed), []
    for own_s in task_s[:, run.worker % (size - 1)]:  # the server has no tasks
        for task in run.shards():
            problem.sleep(own_s)
            problem.loss(model, task).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        ends.append(time.monotonic())
    run.finish()
    off = (model.weight.detach() - problem.descended(len(task_s))).abs().max()
    late = _late(run)
    run.detach()
    return {
        "seconds": (ends[-1] - ends[WARM - 1]) / config.steps,
        "late": late / len(task_s),
        "off": float(off / model.weight.detach().abs().max()),
    }


def _late(run: Run) -> int:
    reducer = getattr(run._exchange, "reducer", None)
    return reducer.late if isinstance(reducer, CodedGradients) else 0


class _Problem:
    """Least squares over shards, the same on all ranks, as they are or as a code stores them."""

    def __init__(self, cadence: ByShards, workers: int) -> None:
        random = np.random.default_rng(7)
        shards = workers
        self._x = random.normal(size=(shards, _SAMPLES, _FEATURES)) / _FEATURES**0.5
        self._y = random.normal(size=(shards, _SAMPLES, 1))
        self._coded, self._tasks = cadence.code.startswith("lagrange"), 1.0
        if self._coded:
            several = cadence.code == "lagrange"
            code = lagrange_of(workers, cadence.load, several)
            self._x, self._y = _cut(self._x, code.shards), _cut(self._y, code.shards)
            stored = code.encode(self._x), code.encode(self._y)
            self._stored = [torch.view_as_real(torch.from_numpy(one)).float() for one in stored]
            self._tasks = 0.5 if several else cadence.load / 2  # of a shard's time, for each half

    def sleep(self, task_s: float) -> None:
        """As long as a task takes."""
        time.sleep(self._tasks * task_s)

    def loss(self, model: nn.Module, task: Any) -> Tensor:
        """Whose gradient is the task's."""
        if not self._coded:
            x, y = (torch.from_numpy(one[task]).float() for one in (self._x, self._y))
            residual: Tensor = model(x) - y
            return residual.square().sum() / 2
        x, y = (one[task.point] for one in self._stored)
        real, imaginary = (model(x[..., half]) - y[..., half] for half in (0, 1))
        found: Tensor = halves(real, imaginary)[task.second]
        return found

    def descended(self, steps: int) -> Tensor:
        """Where gradient descent by the mean over shards is."""
        shards, x, y = len(self._x), np.concatenate(self._x), np.concatenate(self._y)
        weight = np.zeros((_FEATURES, 1))
        for _ in range(steps):
            weight -= _LR / shards * (x.T @ (x @ weight - y))
        return torch.from_numpy(weight.T).float()


def _cut(values: Seconds, parts: int) -> Seconds:
    """The samples of all shards, in so many parts; zeros, which count for nothing, fill the last one."""
    flat = np.concatenate(values)
    each = -(-len(flat) // parts)
    full = np.zeros((parts * each, flat.shape[1]))
    full[: len(flat)] = flat
    return full.reshape(parts, each, -1)


@dataclass(frozen=True, slots=True)
class Digits:
    """Training on the digits: every worker has all samples of a step, and takes its shards of them."""

    workers: int = 8
    steps: int = 150
    batch: int = 256
    lr: float = 0.2


def both_models(notes: Notes, side: str, cadence: ByShards, config: Digits) -> None:
    """A line of kind "digits": how far the model is, at most, from that of plain synchronous training, on any
    rank; and the accuracies."""
    if notes.has(kind="digits", side=side):
        return
    notes.log(f"live, digits: {side}")
    size = 1 + config.workers
    mine, plain = (
        run_ranks(_digits, size, how, config, backend="tweed", timeout=300) for how in (cadence, None)
    )
    off = max(float(np.abs(one["model"] - plain[0]["model"]).max()) for one in mine)
    accuracies = {"accuracy": mine[0]["accuracy"], "plain": plain[0]["accuracy"]}
    notes.add({"kind": "digits", "side": side, "steps": config.steps, "off": off} | accuracies)


def _digits(rank: int, size: int, cadence: ByShards | None, config: Digits) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    task, server = Shard("digits", config.batch, 0, 1), Server(0)
    model = task.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr, momentum=0.9)
    strategy = (
        Strategy(collective=server) if cadence is None else Strategy(cadence=cadence, collective=server)
    )
    run = tweed.attach(model, optimizer, strategy)
    random = np.random.default_rng([3, rank])
    for step in range(config.steps):
        samples = np.array_split(task.batch(step), config.workers)
        if cadence is not None:
            for shard in run.shards():
                time.sleep(random.exponential(0.002))  # somebody is always late
                task.loss(model, samples[shard]).backward()  # type: ignore[no-untyped-call]
        elif not run.serves:
            task.loss(model, samples[run.worker]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    run.finish()
    run.detach()
    _, right, count = task.scores(model, len(task.arrays.test)).tolist()
    values = torch.cat([param.detach().flatten() for param in model.parameters()])
    return {"model": values.numpy(), "accuracy": right / count}
