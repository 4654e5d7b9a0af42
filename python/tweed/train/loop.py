"""What each worker does: a plain training loop, evaluated and stored now and then."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tweed.testbed import sent_bytes
from tweed.train import checkpoint
from tweed.train.meter import Meter
from tweed.train.settings import Settings
from tweed.train.shard import Shard, optimizer_step, set_lr
from tweed.train.sides import Side, maker
from tweed.train.tasks import row
from tweed.train.timeline import StepRecorder
from tweed.train.together import Together

#: Evaluations and checkpoints per side, and steps between two at most. Figures come ten times as often.
STOPS = 8
APART = 500


@dataclass(frozen=True, slots=True)
class Figures:
    """What is told of a side's state, over all ranks where nothing else is said.

    Attributes:
      side: label of the side.
      step: steps done.
      samples: samples seen, by all ranks together.
      seconds: of training so far, on rank 0; `meter` has what counts as training, here and below.
      loss: mean training loss since the last figures; None where nobody knows it, as at a hub.
      samples_per_s: since the last figures.
      bytes_per_worker: sent in training; see `together.crossed`; computed, the same way for every side.
      aside_bytes_per_worker: the same of evaluations.
      link_bytes_per_worker: in a testbed, mean over ranks of what their links have sent in training, with
        headers and what was sent again. None elsewhere.
      waiting_s: mean over ranks of the time in training spent waiting on the network; None if the side does
        not tell.
      delivered: by rank, the share of its contributions that arrived so far; None where none can be lost.
      compression: what `compress="auto"` has chosen here and what that brings; None where nothing is chosen.
      test_loss, accuracy: None between evaluations.
      members, epoch: how many there are, and the number of their epoch, where they come and go.
      timeline: at the end, by rank, a step as `StepTimeline` has it; None if nobody waited.
    """

    side: str
    step: int
    samples: int
    seconds: float
    loss: float | None
    samples_per_s: float
    bytes_per_worker: int
    aside_bytes_per_worker: int
    link_bytes_per_worker: int | None
    waiting_s: float | None
    delivered: list[float] | None
    compression: dict[str, Any] | None
    test_loss: float | None = None
    accuracy: float | None = None
    members: int | None = None
    epoch: int | None = None
    timeline: list[dict[str, Any]] | None = None


Report = Callable[[dict[str, Any]], None]


def interval(steps: int) -> int:
    """Steps between two evaluations, which are followed by a checkpoint."""
    return max(1, min(steps // STOPS, APART))


def due(step: int, steps: int) -> tuple[bool, bool]:
    """Whether figures follow this step, counted from 1; and whether scores and a checkpoint go with them."""
    every = interval(steps)
    scores = step > 0 and (step % every == 0 or step == steps)
    return scores or (step > 0 and step % max(1, every // 10) == 0), scores


def _seed_all(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


class Worker:
    """One rank of one side. Needs a default process group.

    Args:
      settings: the job.
      label: which side of it.
      folder: where this side's checkpoints are.
      tell: called on rank 0 with each `Figures`, as a dict.
      among: who measures together; None: all ranks.
    """

    def __init__(
        self, settings: Settings, label: str, folder: Path, report: Report, among: Together | None = None
    ) -> None:
        self._settings, self._label, self._folder, self._report_to = settings, label, folder, report
        self._among = among or Together()
        self._shard = self._deal()
        _seed_all(settings.seed)
        self.model = self._shard.model()
        self._optimizer = self._shard.task.optimizer(self.model.parameters(), settings.lr)
        self._meter = Meter(self._among)
        with self._meter.training():
            self._side = self._made()
        self._meter.side = self._side
        _seed_all(settings.seed * self._among.size + self._among.rank + 1)
        self._step = self._reported_step = 0
        self._recorder = StepRecorder(settings.steps // 2)  # past the first ones, which are slow
        self._losses: list[Tensor] = []
        self._reported_s = 0.0

    def _deal(self) -> Shard:
        settings, server, rank = self._settings, self._settings.server, self._among.rank
        worker = rank - (server is not None and server < rank)
        of = (worker, settings.workers, settings.partition, settings.seed)
        return Shard(settings.task, settings.batch_size, *of)

    def _made(self) -> Side:
        """What ties the model to those of the other ranks."""
        return maker(self._label, self._settings)(self.model, self._optimizer)

    def run(self) -> None:
        """Trains to the end, from the last checkpoint if there is one."""
        state = checkpoint.load(self._folder)
        if state is not None:
            self._load_state(state)
        while self._step < self._settings.steps:
            with self._meter.training():
                self._train_step()
                if self._step == self._settings.steps:
                    self._side.finish()
            self._look()

    def _look(self) -> None:
        """Evaluates, stores and reports what is due after the last step."""
        figures, scores = self._due()
        if scores:
            with self._meter.aside():
                with self._side.averaged():
                    found = self._evaluate(row(self._settings.task).test_samples)
                self._report(found | self._timeline())
                self._store()
        elif figures:
            self._report({})

    def _due(self) -> tuple[bool, bool]:
        """After the last step."""
        return due(self._step, self._settings.steps)

    def _timeline(self) -> dict[str, Any]:
        """At the end, when no rank records any more."""
        if self._step < self._settings.steps:
            return {}
        by_rank = self._steps_by_rank()
        return {"timeline": by_rank if any(by_rank) else None}

    def _steps_by_rank(self) -> list[dict[str, Any] | None]:
        return self._among.gather(self._recorder.plain())

    def _store(self) -> None:
        checkpoint.save(self._folder, self._step, self._state())

    def _train_step(self) -> None:
        set_lr(self._optimizer, self._settings.lr_at(self._step))
        with self._recorder.step(self._step + 1), self._side.recorded():
            loss = optimizer_step(self._optimizer, None if self._side.serves else self._loss)
        if loss is not None:
            self._losses.append(loss)
        self._step += 1

    def _loss(self) -> Tensor:
        return self._shard.loss(self._side.module, self._shard.batch(self._step))

    def _report(self, scores: dict[str, Any]) -> None:
        spent, seconds = self._meter.spent, self._meter.seconds
        mean_loss = float(torch.stack(self._losses).mean()) if self._losses else 0.0
        loss, waited, over_links = self._among.sums([mean_loss, spent.waiting_s, spent.link_bytes])
        size, batch = self._among.size, self._settings.batch_size * self._settings.workers
        recent = seconds - self._reported_s
        figures = Figures(
            side=self._label,
            step=self._step,
            samples=self._step * batch,
            seconds=seconds,
            loss=loss / (size - (self._settings.server is not None)),
            samples_per_s=(self._step - self._reported_step) * batch / max(recent, 1e-9),
            bytes_per_worker=self._among.crossed(spent.exchanged),
            aside_bytes_per_worker=self._among.crossed(self._meter.exchanged_aside),
            link_bytes_per_worker=None if sent_bytes() is None else round(over_links / size),
            waiting_s=None if self._side.waiting() is None else waited / size,
            delivered=self._delivered(),
            compression=self._side.compression(),
            **scores,
        )
        self._reported()
        if self._among.rank == 0:
            self._report_to(asdict(figures))

    def _reported(self) -> None:
        """The next figures begin here."""
        self._losses, self._reported_s, self._reported_step = [], self._meter.seconds, self._step

    def _delivered(self) -> list[float] | None:
        mine = self._side.delivered()
        if mine is None:
            return None
        ranks = range(self._among.size)
        return self._among.sums([mine if rank == self._among.rank else 0.0 for rank in ranks])

    def _evaluate(self, count: int) -> dict[str, float]:
        """Test loss and accuracy of the first `count` test samples, of which each rank takes its share."""
        self.model.eval()
        sums = self._among.sum(self._shard.scores(self.model, count, self._among.rank, self._among.size))
        self.model.train()
        return {"test_loss": float(sums[0] / sums[2]), "accuracy": float(sums[1] / sums[2])}

    def _state(self) -> dict[str, Any]:
        of_numpy = np.random.get_state(legacy=False)
        of_numpy["state"]["key"] = of_numpy["state"]["key"].tolist()
        side = self._side.state_dict()  # first: it may wait for what is under way, which the meter counts
        return {
            "step": self._step,
            "meter": self._meter.state_dict(),
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "side": side,
            "random": (random.getstate(), of_numpy, torch.get_rng_state()),
        }

    def _load_state(self, state: dict[str, Any]) -> None:
        self._step = self._reported_step = state["step"]
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._side.load_state_dict(state["side"])
        self._meter.load_state_dict(state["meter"])
        self._reported_s = self._meter.seconds
        of_python, of_numpy, of_torch = state["random"]
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        torch.set_rng_state(of_torch)
