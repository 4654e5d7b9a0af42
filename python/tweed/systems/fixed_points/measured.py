"""What rules for fixed points learn, how long their steps take, and what their factors weigh."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from statistics import median

import numpy as np
import torch
from torch import Tensor, nn

from tweed.data import load
from tweed.errors import DataError
from tweed.report.notes import Line, Notes
from tweed.systems.harness.learning_rates import Grid
from tweed.systems.harness.tuning import Side
from tweed.workloads.fixed_points import (
    Anderson,
    Linearised,
    Plain,
    RateNetwork,
    Reparameterised,
    Rule,
    Variant,
)

#: Rules by their keys, made for a learning rate.
RULES: dict[str, Callable[[float], Rule]] = {
    "plain": lambda rate: Plain(Anderson(tolerance=1e-4, steps=50)),
    "plain, equations": lambda rate: Plain(),
    "reparameterised": Reparameterised,
    "linearised": lambda rate: Linearised(),
    "variant": lambda rate: Variant(),
}
#: Steps between looks at every fifth of the test samples; all are looked at in the end.
_EVERY, _FIFTH = 20, 5


@dataclass(frozen=True, slots=True)
class Relaxation:
    """A solver that follows the rates for a fixed time, as the paper's code does, whether they rest or not.

    Attributes:
      rate, steps: as of `Euler`.
    """

    rate: float = 0.1
    steps: int = 50

    def __call__(self, map: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
        """Where the rates are then. Raises: DataError if they are not finite."""
        point = start
        for _ in range(self.steps):
            point = point + self.rate * (map(point) - point)
        if not bool(point.isfinite().all()):
            raise DataError("rates grow without bound")
        return point


@dataclass(frozen=True, slots=True)
class Pictures:
    """A classifier of pictures: fixed random weights before and behind a rate network that learns.

    Attributes:
      data: a data set of pictures, values from 0 to `scale`.
      size: N, the rates.
      batch, steps: samples of a step, and steps.
    """

    data: str = "mnist"
    scale: float = 255.0
    size: int = 300
    batch: int = 512
    steps: int = 354

    def side(self, rule: str, grid: Grid, seeds: range) -> Side:
        """A rule at its best learning rate: lines of kind "pictures"."""
        facts = {"kind": "pictures", "rule": rule}
        return Side(f"pictures, {rule}", facts, partial(self.run, rule), grid, seeds)

    def run(self, rule: str, rate: float, seed: int) -> Line:
        """A training. It ends at once where rates grow without bound, or weights are not finite."""
        torch.set_num_threads(1)
        generator = torch.Generator().manual_seed(seed)
        (x, y), (test_x, test_y) = _split(self.data, self.scale)
        net = RateNetwork(self.size, "tanh", RULES[rule](rate), Relaxation(), 0.5, generator)
        before = torch.randn(x.shape[1], self.size, generator=generator) / x.shape[1] ** 0.5
        behind = torch.randn(self.size, int(y.max()) + 1, generator=generator) / self.size**0.5
        optimizer = torch.optim.SGD(net.parameters(), lr=rate)
        curve, radii, ended = [], [], None
        for step in range(self.steps):
            which = torch.randint(len(x), (self.batch,), generator=generator)
            try:
                loss = nn.functional.cross_entropy(net(x[which] @ before) @ behind, y[which])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                if step % _EVERY == _EVERY - 1 or step == self.steps - 1:
                    part = slice(None, None, 1 if step == self.steps - 1 else _FIFTH)
                    with torch.no_grad():
                        found = (net(test_x[part] @ before) @ behind).argmax(1)
                    curve.append(float((found == test_y[part]).float().mean()))
                    radii.append(_most_real(net.recurrent.weight.detach()))
            except (DataError, RuntimeError):  # a singular system is the latter
                ended = step
                break
        accuracy = curve[-1] if curve and ended is None else 0.0
        facts = {"peak": max(curve, default=0.0), "ended": ended, "eigenvalue": max(radii, default=None)}
        return {"accuracy": accuracy, "curve": curve, **facts}


@cache
def _split(name: str, scale: float) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    found = load(name)
    parts = [
        (
            torch.from_numpy(np.array(part.x)).float().flatten(1) / scale,
            torch.from_numpy(np.array(part.y)).long(),
        )
        for part in (found.train, found.test)
    ]
    return parts[0], parts[1]


def _most_real(weight: Tensor) -> float:
    """The largest real part of the eigenvalues."""
    return float(torch.linalg.eigvals(weight).real.max())


@dataclass(frozen=True, slots=True)
class Linear:
    """The paper's linear task: rates that another linear network has, with noise.

    Attributes:
      size, samples: N, and the samples, which all are in each step.
      steps: so many.
    """

    size: int = 200
    samples: int = 100
    steps: int = 1000

    def run(self, notes: Notes, rule: str, rate: float, seed: int = 0) -> None:
        """A line of kind "linear": the loss over that of the noise, by step. It ends above 1e6."""
        facts = {"kind": "linear", "rule": rule, "lr": rate, "seed": seed}
        if notes.has(**facts):
            return
        generator = torch.Generator().manual_seed(seed)
        normal = partial(torch.randn, generator=generator, dtype=torch.float64)
        eye = torch.eye(self.size, dtype=torch.float64)
        hidden = 0.5 * normal(self.size, self.size) / self.size**0.5
        x = 0.1 * normal(self.samples, self.size)
        noise = 0.01 * normal(self.samples, self.size)
        wanted = torch.linalg.solve(eye - hidden, x.T).T + noise
        net = RateNetwork(self.size, "linear", RULES[rule](rate), radius=0.75, generator=generator).double()
        weight = net.recurrent.weight
        net.solver = lambda _, start: torch.linalg.solve(eye - weight.detach(), x.T).T
        floor, losses = float(noise.square().sum(1).mean()), []
        for _ in range(self.steps):
            loss = (net(x) - wanted).square().sum(1).mean() / 2
            losses.append(2 * loss.item() / floor)
            if not losses[-1] < 1e6:
                break
            (gradient,) = torch.autograd.grad(loss, weight)
            with torch.no_grad():
                weight -= rate * gradient
        notes.add({**facts, "losses": losses[:: max(1, self.steps // 100)], "last": losses[-1]})


def step_times(notes: Notes, size: int, batch: int, rounds: int) -> None:
    """Seconds of a step of each rule, median of so many rounds in turns; the forward pass is the same."""
    if notes.has(kind="times", size=size):
        return
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(batch, size, generator=generator)
    nets = {key: RateNetwork(size, "tanh", make(0.1), Relaxation()) for key, make in RULES.items()}
    taken: dict[str, list[float]] = {key: [] for key in nets}
    for _ in range(rounds):
        for key, net in nets.items():
            began = time.perf_counter()
            net(x).square().mean().backward()
            taken[key].append(time.perf_counter() - began)
    for key, seconds in taken.items():
        notes.add({"kind": "times", "size": size, "batch": batch, "rule": key, "seconds": median(seconds)})
