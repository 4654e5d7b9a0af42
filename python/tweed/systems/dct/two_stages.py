"""Whole trainings of a model in two stages of one process: what is learned, and what crosses the cut.

Both stages run the code that runs live; no network and no clock takes part.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tweed.exchange.stage_link import StageLink
from tweed.exchange.stages import Cut
from tweed.simulate.stages import stage_links
from tweed.train.shard import Shard, cosine, set_lr

#: A training has diverged when its loss is above this, or no number.
FAR = 100.0


@dataclass(frozen=True, slots=True)
class Config:
    """One training.

    Attributes:
      task: in `tweed.train.tasks.TASKS`, whose model is a sequence of layers.
      at: the first layer of the second stage.
      cut: how activations cross; None: one machine.
      steps, batch: optimizer steps, and samples per step.
      lr: at the start; it falls to zero along half a cosine.
      seed: of model and batches.
      test_samples: from the first of the test set.
    """

    task: str
    at: int
    cut: Cut | None
    steps: int
    batch: int
    lr: float
    seed: int
    test_samples: int = 2_500


@dataclass(slots=True)
class Outcome:
    """What came of it.

    Attributes:
      accuracy: with what crosses the cut alone, as in training.
      whole_accuracy: of the stages joined, with all activations.
      forward_share, backward_share: of bytes, of float32 for every activation and for every gradient.
      values_share: of activations that crossed.
      diverged: whether training ended early because of that; then accuracies are 0.
    """

    accuracy: float = 0.0
    whole_accuracy: float = 0.0
    forward_share: float = 1.0
    backward_share: float = 1.0
    values_share: float = 1.0
    diverged: bool = False


class _Joined(nn.Module):
    """Both stages, with the cut between them; without links they are one model."""

    def __init__(self, model: nn.Module, at: int, links: tuple[StageLink, StageLink] | None) -> None:
        super().__init__()
        layers = list(model.children())
        self.first, self.second = nn.Sequential(*layers[:at]), nn.Sequential(*layers[at:])
        self.links, self.crossed = links, 0
        self.zero: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        self.crossed += hidden.numel()
        if self.links is not None:
            self.zero = self.links[0].send(hidden)
            hidden = self.links[1].receive()
        out: Tensor = self.second(hidden)
        return out


def train(config: Config) -> Outcome:
    """Trains and evaluates. Cost: backward passes on one thread."""
    torch.set_num_threads(1)
    shard = Shard(config.task, config.batch, 0, 1, seed=config.seed)
    torch.manual_seed(config.seed)
    links = None if config.cut is None else stage_links(config.cut)
    model = _Joined(shard.model(), config.at, links)
    optimizer = shard.task.optimizer(model.parameters(), config.lr)
    for step in range(config.steps):
        set_lr(optimizer, cosine(config.lr, step, config.steps))
        loss = shard.loss(model, shard.batch(step))
        if not loss.item() < FAR:
            return Outcome(diverged=True)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if model.zero is not None:
            model.zero.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return _evaluated(model, shard, config)


def _evaluated(model: _Joined, shard: Shard, config: Config) -> Outcome:
    outcome = Outcome()
    if model.links is not None:
        first, second = model.links
        outcome.forward_share = first.bytes_sent / (4 * model.crossed)
        outcome.backward_share = second.bytes_sent / (4 * model.crossed)
        outcome.values_share = first.values_sent / model.crossed
    outcome.accuracy = _accuracy(model, shard, config)
    model.links = None
    outcome.whole_accuracy = _accuracy(model, shard, config)
    return outcome


def _accuracy(model: nn.Module, shard: Shard, config: Config) -> float:
    _, right, count = shard.scores(model, config.test_samples).tolist()
    return float(right / count)
