"""What target propagation learns, by fixed and by trained feedback, and how long its steps take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from statistics import median

import numpy as np
import torch
from torch import Tensor, nn

from tweed.data import load
from tweed.errors import DataError
from tweed.report.notes import Line, Notes
from tweed.workloads.target_propagation import (
    Feedback,
    FixedFeedback,
    TargetLayer,
    TrainedFeedback,
    reconstruction,
    target_network,
)

#: Steps of trained feedback per step of the weights, and the noise of its samples.
FEEDBACK_STEPS, NOISE = 5, 0.01


@dataclass(frozen=True, slots=True)
class Contender:
    """A way to train a network.

    Attributes:
      feedback: fixed weights; None: trained ones, DTP.
      feedback_rate: learning rate of trained ones.
      normalise: over the batch.
    """

    feedback: FixedFeedback | None = field(default_factory=FixedFeedback)
    feedback_rate: float = 0.1
    normalise: bool = True


@dataclass(frozen=True, slots=True)
class Setting:
    """What is trained: pictures of `data`, values from 0 to `scale`, by hidden layers of equal width."""

    data: str = "mnist"
    scale: float = 255.0
    hidden: int = 5
    width: int = 256
    batch: int = 256
    beta: float = 0.04

    def sizes(self) -> list[int]:
        """Values of the input, of each layer's output, and of the last one's."""
        (x, y), _ = pictures(self.data, self.scale)
        return [x.shape[1], *[self.width] * self.hidden, int(y.max()) + 1]


@dataclass(slots=True)
class Training:
    """A network, its optimizers, and a step of them."""

    network: nn.Sequential
    weights: torch.optim.Optimizer
    feedback: torch.optim.Optimizer | None
    generator: torch.Generator

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        """Feedback learns first, if it does; then the weights. Returns the loss."""
        if self.feedback is not None:
            for _ in range(FEEDBACK_STEPS):
                self.feedback.zero_grad()
                reconstruction(self.network, x, NOISE, self.generator).backward()  # type: ignore[no-untyped-call]
                self.feedback.step()
        loss = nn.functional.cross_entropy(self.network(x), y)
        self.weights.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.weights.step()
        return loss


def training(setting: Setting, contender: Contender, rate: float, seed: int) -> Training:
    """Everything at its beginning."""
    generator = torch.Generator().manual_seed(seed)
    made: Feedback = contender.feedback or TrainedFeedback(generator)
    net = target_network(setting.sizes(), made, setting.beta, contender.normalise, generator)
    layers = [layer for layer in net if isinstance(layer, TargetLayer)]
    back = [param for layer in layers if layer.feedback is not None for param in layer.feedback.parameters()]
    feedback = torch.optim.SGD(back, lr=contender.feedback_rate) if back else None
    return Training(net, torch.optim.SGD([layer.weight for layer in layers], lr=rate), feedback, generator)


def run(setting: Setting, contender: Contender, epochs: int, rate: float, seed: int) -> Line:
    """Trains. Test accuracy after each epoch, and at the end; 0 where a target was not finite."""
    torch.set_num_threads(1)
    (x, y), (test_x, test_y) = pictures(setting.data, setting.scale)
    made = training(setting, contender, rate, seed)
    curve: list[float] = []
    for _ in range(epochs):
        for which in _batches(len(x), setting.batch, made.generator):
            try:
                made.step(x[which], y[which])
            except DataError:
                return {"accuracy": 0.0, "curve": curve}
        with torch.no_grad():
            curve.append(float((made.network(test_x).argmax(1) == test_y).float().mean()))
    return {"accuracy": curve[-1], "curve": curve}


def _batches(samples: int, batch: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Whole batches of an epoch."""
    order = torch.randperm(samples, generator=generator)
    yield from order[: samples // batch * batch].view(-1, batch)


@cache
def pictures(name: str, scale: float) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Training and test set: `[n, pixels]` from 0 to 1, and classes."""
    found = load(name)
    train, test = (
        (
            torch.from_numpy(np.array(part.x)).float().flatten(1) / scale,
            torch.from_numpy(np.array(part.y)).long(),
        )
        for part in (found.train, found.test)
    )
    return train, test


def step_times(notes: Notes, setting: Setting, contenders: dict[str, Contender], rounds: int) -> None:
    """Seconds of a step of each, median of so many rounds in turns, on one thread."""
    if notes.has(kind="times"):
        return
    torch.set_num_threads(1)
    (x, y), _ = pictures(setting.data, setting.scale)
    steps: dict[str, Callable[[], object]] = {
        key: partial(training(setting, made, 0.1, 0).step, x[: setting.batch], y[: setting.batch])
        for key, made in contenders.items()
    }
    taken: dict[str, list[float]] = {key: [] for key in steps}
    for _ in range(rounds):
        for key, step in steps.items():
            began = time.perf_counter()
            step()
            taken[key].append(time.perf_counter() - began)
    for key, seconds in taken.items():
        notes.add({"kind": "times", "contender": key, "seconds": median(seconds)})
