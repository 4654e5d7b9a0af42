"""A worker of a run whose members come and go: a plain loop with `tweed.attach(elastic=...)`.

The batch of a step is that of all workers that began, whoever is there. What only one may do, as figures and
evaluations, rank 0 of the epoch does before the next step, and its successor where it is lost: so a member
that joins, or that follows the others' results, needs nobody for it.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import tweed
from tweed.elastic import Checkpoints, Control
from tweed.elastic.change import SHORT
from tweed.elastic.run import leaving
from tweed.errors import DataError
from tweed.train.folder import RunFolder
from tweed.train.loop import Report, Worker, due, interval
from tweed.train.meter import Meter
from tweed.train.settings import OURS, Settings
from tweed.train.shard import Shard, optimizer_step, set_lr
from tweed.train.sides import Side
from tweed.train.together import Alone, crossed

#: The longest wait for a group; silent members are found within a second, whatever this is.
_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Entered:
    """This process is a member of another epoch.

    Attributes:
      epoch: its number.
      members: how many there are.
      rank: of this process among them.
      step: the first that this process has made with them.
      seconds: of training before that step.
      step_s: how long it took, with all that the change has cost; None at the begin of a run.
      pause_s: seconds of it in which this process had no group to go on with; None there too.
      keys: of all members in the order of their ranks, so much of each as tells them apart.
      reason: who was lost, left or joined, and which link was cut, as `Change.words` has it.
    """

    epoch: int
    members: int
    rank: int
    step: int
    seconds: float
    step_s: float | None
    pause_s: float | None
    keys: tuple[str, ...]
    reason: str


Noted = Callable[[Entered], None]


def about(settings: Settings, folder: RunFolder) -> str:
    """What a run says to who joins it."""
    return json.dumps({"name": folder.path.name, "settings": settings.to_json()})


def told(text: str) -> tuple[str, Settings]:
    """The inverse: a run's name, and its settings. Raises: DataError if it is no run of `tweed train`."""
    try:
        found = json.loads(text)
        return str(found["name"]), Settings.from_json(found["settings"])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(
            f"what is joined is no run of `tweed train` of this version of tweed: {error}"
        ) from None


class Members(Side):
    """A plain model with `tweed.attach(elastic=...)`, see `Side`.

    Attributes:
      run: the members.
      bytes: that this process had to send so far; computed, see `together.crossed`.
    """

    serves = False

    def __init__(self, model: nn.Module, optimizer: Optimizer, strategy: str, control: Control) -> None:
        self.module = model
        self.run = tweed.attach(model, optimizer, strategy, elastic=control)
        self.bytes = self._seen = 0

    def count(self) -> None:
        """A step counts. The number of members changes, so what has crossed is counted step by step."""
        exchanged = self.run.stats.bytes_exchanged
        self.bytes += crossed(exchanged - self._seen, max(1, len(self.run.members)))
        self._seen = exchanged

    def exchanged(self) -> int:
        """What has crossed already."""
        return self.bytes

    def waiting(self) -> float:
        return self.run.stats.waiting_s

    def state_dict(self) -> dict[str, Any]:
        return {"bytes": self.bytes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.bytes = state["bytes"]


class Spent:
    """What training has taken so far, for who joins and who goes on from a checkpoint: `run.keep`.

    An iteration that does not count takes its time and its bytes all the same, so a state of this process's
    own, as it was before, changes nothing.

    Args:
      key: of this process.
    """

    def __init__(self, key: str, side: Members, meter: Meter) -> None:
        self._key, self._side, self._meter = key, side, meter

    def state_dict(self) -> dict[str, Any]:
        """The state of side and meter, and the key of the process that it belongs to."""
        return {"of": self._key, "side": self._side.state_dict(), "meter": self._meter.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over the state, unless it is this process's own."""
        if state["of"] != self._key:
            self._side.load_state_dict(state["side"])
            self._meter.load_state_dict(state["meter"])


class ElasticWorker(Worker):
    """One member of our side. See the module.

    Args:
      settings, folder, report: as for `Worker`; whoever is rank 0 calls `report`.
      control: this process among the members.
      noted: called with each epoch that this process is a member of.

    Attributes:
      interrupted: SIGINT has asked this process to leave.
    """

    _side: Members

    def __init__(
        self, settings: Settings, folder: RunFolder, report: Report, control: Control, noted: Noted
    ) -> None:
        self._control, self._noted, self._epoch = control, noted, 0
        self._counted: tuple[float, float] | None = None  # when a step counted last: now, and in training
        self._noted_to, self._paused_s = 0, 0.0  # changes that were noted; the pause in all, then
        self._round, self._within, self.interrupted = -1, 0, False
        # Sums of losses, and of how many: of this process in a round; and, in a buffer of the model, the mean
        # of all members' when it counts.
        self._own, self._losses_of_all = torch.zeros(2), torch.zeros(2)
        super().__init__(settings, OURS, folder.checkpoints(OURS), report, Alone())

    @property
    def done(self) -> bool:
        """The last step is in its model."""
        return self._step >= self._settings.steps

    def _deal(self) -> Shard:
        return Shard(self._settings.task, self._settings.batch_size, 0, 1, seed=self._settings.seed)

    def _made(self) -> Side:
        self.model.register_buffer("losses", self._losses_of_all)
        return Members(self.model, self._optimizer, self._settings.strategy, self._control)

    def run(self) -> None:
        """Trains to the end, or until this process has left as SIGTERM or SIGINT has asked it to."""
        settings, run = self._settings, self._side.run
        run.keep("spent", Spent(self._control.key, self._side, self._meter))
        rounds = max(1, interval(settings.steps) // settings.every)
        batches = run.batches(
            range(len(self._shard.samples)),
            settings.steps,
            settings.batch_size * settings.workers,
            seed=settings.seed,
            first=self._look,
            checkpoints=Checkpoints(self._folder, rounds),
            timeout_s=_TIMEOUT_S,
            collate_fn=list,
        )
        with run.leaving_on(signal.SIGTERM), leaving(self._interrupt, signal.SIGINT):
            while self._took_part(batches):
                self._went_on()
        run.finish(self._look, self._recorder.plain())
        run.detach()

    def _interrupt(self) -> None:
        self.interrupted = True
        self._side.run.leave()

    def _took_part(self, batches: Iterator[list[int]]) -> bool:
        """In a step, or in a part of one; False: there are none any more."""
        with self._meter.training(), self._recorder.step(self._step + 1):
            picked = next(batches, None)
            self._went_on()
            if picked is not None:
                set_lr(self._optimizer, self._settings.lr_at(min(self._next_step(), self._settings.steps)))
                optimizer_step(self._optimizer, lambda: self._loss_of(picked))
        return picked is not None

    def _next_step(self) -> int:
        """The step that comes next in this model, which within a round of local steps has more than count."""
        counted, every = self._side.run.steps_done, self._settings.every
        before, self._round = self._round, counted
        self._within = 0 if before != counted else self._within + 1
        return counted + self._within % every

    def _loss_of(self, picked: Sequence[int]) -> Tensor:
        loss = self._shard.loss(self.model, self._shard.samples[picked])
        with torch.no_grad():
            if self._within == 0 or self._settings.every == 1:
                self._own.zero_()
            self._own += torch.stack([loss, torch.ones(())])
            self._losses_of_all.copy_(self._own)
        return loss

    def _look(self) -> None:
        self._went_on()
        super()._look()

    def _due(self) -> tuple[bool, bool]:
        """Also after a step of the last round."""
        last = self._step - self._settings.every
        found = [due(step, self._settings.steps) for step in range(last + 1, self._step + 1)]
        return any(figures for figures, _ in found), any(scores for _, scores in found)

    def _went_on(self) -> None:
        """Steps have come to count, as may be seen here and there."""
        run, before = self._side.run, self._counted
        if before is not None and run.steps_done == self._step:
            return
        self._counted = time.monotonic(), self._meter.seconds
        if before is None:  # the begin, also of one that joins
            self._step = run.steps_done
            self._reported()
            self._entered(self._step, self._meter.seconds, None)
            return
        if self._due()[0] and self._reported_step != self._step:
            self._reported()  # by rank 0, before this step
        first, self._step = self._step, run.steps_done
        loss, count = self._losses_of_all.clone()
        self._losses.append(loss / count)
        self._side.count()
        self._entered(first, before[1], self._counted[0] - before[0])

    def _entered(self, step: int, seconds: float, step_s: float | None) -> None:
        run = self._side.run
        if run.rank is None or run.epochs[-1] == self._epoch:
            return
        self._epoch, members = run.epochs[-1], len(run.members)
        pause_s = None if step_s is None else run.paused_s - self._paused_s
        reason = "; ".join(one.words for one in run.changes[self._noted_to :] if one.words)
        self._noted_to, self._paused_s = len(run.changes), run.paused_s
        keys = tuple(key[:SHORT] for key in run.members)
        self._noted(Entered(self._epoch, members, run.rank, step, seconds, step_s, pause_s, keys, reason))

    def _steps_by_rank(self) -> list[dict[str, Any] | None]:
        return self._side.run.told

    def _store(self) -> None:
        return  # the run has written it, each member its part

    def _report(self, scores: dict[str, Any]) -> None:
        super()._report(scores | {"members": len(self._side.run.members), "epoch": self._epoch})
