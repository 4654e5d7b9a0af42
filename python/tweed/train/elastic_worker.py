"""A worker of a run whose members come and go: the loop of every worker, with the steps of an `ElasticRun`.

The batch of a step is that of all workers that began, whoever is there. What only one may do, as figures and
evaluations, rank 0 of the epoch does before the next step, and its successor where it is lost: so a member
that joins, or that follows the others' results, needs nobody for it.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tweed.data.sampler import GlobalOrder, Sampler
from tweed.elastic import Checkpoints, Control, ElasticRun
from tweed.elastic.change import SHORT
from tweed.elastic.state import Stateful
from tweed.errors import DataError
from tweed.train.folder import RunFolder
from tweed.train.loop import Report, Worker, due, interval
from tweed.train.settings import OURS, Settings
from tweed.train.shard import Shard, set_lr
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
      step_s: how long it took in training, with all that the change has cost; None at the begin of a run.
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


class Sums(Side):
    """Plain sums of gradients over all members, see `Side`.

    Attributes:
      bytes: that this process had to send so far; computed, see `together.crossed`.
    """

    serves = False

    def __init__(self, model: nn.Module) -> None:
        self.module, self.bytes = model, 0

    def summed(self, total: Tensor) -> None:
        """`total` was summed over the members of the group."""
        ranks = dist.get_world_size() if dist.is_initialized() else 1
        self.bytes += crossed(total.numel() * total.element_size(), ranks)

    def exchanged(self) -> int:
        """See `Side`; where the number of members changes, what has crossed is counted step by step."""
        return self.bytes

    def state_dict(self) -> dict[str, Any]:
        """See `Side`."""
        return {"bytes": self.bytes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Side`."""
        self.bytes = state["bytes"]


class ElasticWorker(Worker):
    """One member of our side. See the module.

    Args:
      settings, folder, report: as for `Worker`; whoever is rank 0 calls `report`.
      control: this process among the members.
      noted: called with each epoch that this process is a member of.
    """

    def __init__(
        self, settings: Settings, folder: RunFolder, report: Report, control: Control, noted: Noted
    ) -> None:
        self._control, self._noted, self._epoch = control, noted, 0
        self._noted_to, self._paused_s = 0, 0.0  # changes that were noted; the pause in all, then
        super().__init__(settings, OURS, folder.checkpoints(OURS), report, Alone())

    @property
    def done(self) -> bool:
        """The last step is in its model."""
        return self._step >= self._settings.steps

    def _deal(self) -> Shard:
        return Shard(self._settings.task, self._settings.batch_size, 0, 1, seed=self._settings.seed)

    def _made(self) -> Side:
        self._sums = Sums(self.model)
        return self._sums

    def run(self) -> None:
        """Trains to the end, or until this process has left as SIGTERM or SIGINT has asked it to."""
        settings = self._settings
        order = GlobalOrder(len(self._shard.samples), settings.seed)
        sampler = Sampler(order, settings.batch_size * settings.workers)
        keep: dict[str, Stateful] = {
            "model": self.model,
            "optimizer": self._optimizer,
            "side": self._side,
            "meter": self._meter,
        }
        checkpoints = Checkpoints(self._folder, interval(settings.steps))
        self._run = ElasticRun(self._control, sampler, keep, _TIMEOUT_S, checkpoints=checkpoints)
        self._step = self._run.counted
        self._went_on(None)
        self._reported()
        with self._run.leaving_on(signal.SIGTERM, signal.SIGINT):
            while not self.done:
                seconds = self._meter.seconds
                with self._meter.training():
                    self._train_step()
                self._went_on(seconds)
        self._run.finish(self._look, self._recorder.plain())
        self._control.close()

    def _train_step(self) -> None:
        set_lr(self._optimizer, self._settings.lr_at(self._step))
        with self._recorder.step(self._step + 1):
            mean = self._run.step(self._gradient, self._look)
        self._sums.summed(mean)
        if due(self._step, self._settings.steps)[0] and self._reported_step != self._step:
            self._reported()  # by rank 0, before this step
        self._losses.append(mean[-1])
        at = 0
        for param in self.model.parameters():
            param.grad = mean[at : at + param.numel()].view_as(param)
            at += param.numel()
        self._optimizer.step()

    def _went_on(self, since: float | None) -> None:
        """All steps that are counted are in the model; `since`: seconds of training before the last one."""
        run, before, self._step = self._run, self._step, self._run.counted
        if run.epochs and run.epochs[-1] != self._epoch:
            self._epoch, members = run.epochs[-1], run.members
            rank = members.index(self._control.key)
            seconds = self._meter.seconds if since is None else since
            step_s = None if since is None else self._meter.seconds - since
            pause_s = None if since is None else run.paused_s - self._paused_s
            words = [one.words for one in run.changes[self._noted_to :] if one.words]
            self._noted_to, self._paused_s = len(run.changes), run.paused_s
            keys, reason = tuple(key[:SHORT] for key in members), "; ".join(words)
            self._noted(
                Entered(self._epoch, len(members), rank, before, seconds, step_s, pause_s, keys, reason)
            )

    def _gradient(self, samples: Sequence[int]) -> Tensor:
        """The sum of these samples' gradients, and behind it that of their losses."""
        self._optimizer.zero_grad()
        total = torch.zeros(())
        if samples:
            total = self._shard.loss(self.model, self._shard.samples[list(samples)]) * len(samples)
            total.backward()  # type: ignore[no-untyped-call]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.model.parameters()]
        return torch.cat([*(grad.reshape(-1) for grad in grads), total.detach().reshape(1)])

    def _steps_by_rank(self) -> list[dict[str, Any] | None]:
        return self._run.told

    def _store(self) -> None:
        return  # the run has written it, each member its part

    def _report(self, scores: dict[str, Any]) -> None:
        super()._report(scores | {"members": len(self._run.members), "epoch": self._epoch})
