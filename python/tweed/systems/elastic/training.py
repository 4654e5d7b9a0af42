"""Members that faults befall train a task with a total batch; beside them, the same without faults."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median_low
from typing import Any, NamedTuple

import psutil
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tweed.data.sampler import GlobalOrder, Sampler
from tweed.elastic import ElasticRun
from tweed.elastic.change import Change
from tweed.elastic.state import Stateful
from tweed.systems.elastic.watched import Step, Watched, Written, control, strike
from tweed.testbed import Ranks
from tweed.testbed.fault_injector import FaultInjector
from tweed.testbed.faults import Plan
from tweed.testbed.restarts import restarted
from tweed.train.shard import Shard

BATCH = 64
#: With momentum 0.9. Rounding, which differs with who sums what, must not grow into another training.
LR = {"digits": 0.05, "fashion-mnist": 0.01}
#: That nothing befalls: it has the losses of all steps.
SPARED = 1
#: By then it has all that a loss leaves behind.
_FIRST_KILLS = 10
_AWAY = 0.25


class Held(NamedTuple):
    """What a process holds: memory that is resident now, descriptors and threads."""

    bytes: int
    descriptors: int
    threads: int

    @classmethod
    def now(cls) -> Held:
        """What this process holds now."""
        own = psutil.Process()
        return cls(own.memory_info().rss, own.num_fds(), own.num_threads())

    @classmethod
    def early_and_late(cls, looks: Sequence[Held]) -> Sequence[Held]:
        """Medians of the first ten looks and of the last ten: one may fall into a call of a joiner's."""
        tens = (looks[:10], looks[-10:]) if looks else ()
        return [cls(*map(median_low, zip(*ten, strict=True))) for ten in tens]


class Trained(NamedTuple):
    """Parameters at the end, the loss of each step, over its whole batch, and how many epochs there were.

    `held`: by the process, when all were in again after the first ten kills and it had the store of their
    meetings, and when that was so last.
    """

    params: list[float]
    losses: list[float]
    epochs: int = 1
    held: Sequence[Held] = ()


class Trainee:
    """Model and optimizer of a task, in 32 or 64 bits."""

    def __init__(self, dtype: torch.dtype, task: str) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(1)
        self._shard = Shard(task, BATCH, 0, 1)
        self.model: nn.Module = self._shard.model().to(dtype)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=LR[task], momentum=0.9)
        self.sampler = Sampler(GlobalOrder(len(self._shard.samples), seed=1), BATCH)
        self._dtype = dtype

    def gradient(self, samples: Sequence[int]) -> Tensor:
        """`[numel + 1]`: the sum of the gradients of these samples, and of their losses."""
        self.model.zero_grad()
        total = torch.zeros(1, dtype=self._dtype)
        if samples:
            inputs, labels = self._shard.drawn(self._shard.samples[list(samples)])
            loss = F.cross_entropy(self.model(inputs.to(self._dtype)), labels, reduction="sum")
            loss.backward()  # type: ignore[no-untyped-call]
            total = loss.detach().reshape(1)
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.model.parameters()]
        return torch.cat([*(grad.flatten() for grad in grads), total])

    def step(self, mean: Tensor) -> float:
        """Takes a step with the mean over a batch. Returns its loss."""
        at = 0
        for param in self.model.parameters():
            param.grad = mean[at : at + param.numel()].view_as(param)
            at += param.numel()
        self.optimizer.step()
        return float(mean[-1])

    @property
    def params(self) -> list[float]:
        """All parameters; of tensors that a process sends, only those of its own life can be read."""
        found: list[float] = torch.cat([p.detach().reshape(-1) for p in self.model.parameters()]).tolist()
        return found

    def test_loss(self, params: Sequence[float]) -> float:
        """The mean over all test samples, of a model with these parameters."""
        flat = torch.tensor(params, dtype=self._dtype)
        nn.utils.vector_to_parameters(flat, self.model.parameters())
        model = self.model.float()
        loss, _, count = self._shard.scores(model, len(self._shard.arrays.test)).tolist()
        self.model = model.to(self._dtype)
        return float(loss / count)


def undisturbed(steps: int, dtype: torch.dtype, task: str) -> Trained:
    """Trains in one process alone."""
    trainee, losses = Trainee(dtype, task), list[float]()
    sampler = trainee.sampler
    for _ in range(steps):
        deal = sampler.deal(["alone"])
        samples = sampler.order.samples(deal.share("alone"))
        losses.append(trainee.step(trainee.gradient(samples) / len(samples)))
        sampler = sampler.counted(deal)
    return Trained(trainee.params, losses)


def compared(members: int, plan: Plan, dtype: torch.dtype, task: str) -> dict[str, Any]:
    """Members train while all faults befall them, and as long as that takes.

    Returns: `steps`, `epochs`, `equal` (members have the same bits at the end), `apart` (the largest
      difference of a parameter to the undisturbed run), `losses_apart` (of a step's loss), `test_apart` (of
      the test loss at the end), `seconds`, and of the spared one `members_over_time` and what it
      `held`, see `Trained`.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Ranks(_rank, members, folder, dtype, task) as ranks:
            watched = Watched(ranks, folder)
            strike(watched, FaultInjector(plan, members, watched.pid, folder=folder), members, _AWAY)
            ended = watched.end()
            steps = watched.steps(SPARED)
    spared = ended[SPARED]
    alone, trainee = undisturbed(len(spared.losses), dtype, task), Trainee(dtype, task)
    return {
        "steps": len(spared.losses),
        "epochs": spared.epochs,
        "equal": all(one.params == spared.params for one in ended),
        "apart": _apart(spared.params, alone.params),
        "losses_apart": _apart(spared.losses, alone.losses),
        "test_apart": abs(trainee.test_loss(spared.params) - trainee.test_loss(alone.params)),
        "seconds": time.monotonic() - began,
        "members_over_time": over_time(steps),
        "held": spared.held,
    }


def over_time(steps: Sequence[Step]) -> list[list[float]]:
    """Seconds since the first step, and how many members there were from then on, each time that changed."""
    found: list[list[float]] = []
    for step in steps:
        if not found or found[-1][1] != step.members:
            found.append([round(step.end - steps[0].begin, 3), step.members])
    return found


def replayed(task: str, share: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of steps of one process: with the gradient of so many samples, and with a result that it is
    given, as who joins is."""
    trainee = Trainee(torch.float32, task)
    found: dict[str, list[float]] = {"trained": [], "replayed": []}
    for number in range(rounds):
        begin = time.monotonic()
        mean = trainee.gradient(range(number * share, (number + 1) * share)) / share
        trainee.step(mean)
        middle = time.monotonic()
        trainee.step(mean)
        found["trained"].append(middle - begin)
        found["replayed"].append(time.monotonic() - middle)
    return found


def _apart(some: Sequence[float], others: Sequence[float]) -> float:
    return max(abs(one - other) for one, other in zip(some, others, strict=True))


def _rank(rank: int, size: int, folder: Path, dtype: torch.dtype, task: str) -> Any:
    return restarted(_life, folder, rank, size, folder, dtype, task)


def _life(life: int, rank: int, size: int, folder: Path, dtype: torch.dtype, task: str) -> Trained:
    trainee, losses = Trainee(dtype, task), list[float]()
    elastic = control(life, rank, size, size, folder)
    keep: dict[str, Stateful] = {"model": trainee.model, "optimizer": trainee.optimizer}
    run, held = ElasticRun(elastic, trainee.sampler, keep, check_every=1), list[Held]()
    with Written(folder, rank, life) as written:
        while not written.over(run.steps_done):
            begin = time.monotonic()
            losses.append(trainee.step(run.step(trainee.gradient)))
            written.step(run.steps_done, begin, len(run.members))
            # Who has the store of the meetings holds more; one that is spared has it once rank 0 is lost.
            all_in = len(run.members) == size and _lost(run.changes) >= _FIRST_KILLS
            if all_in and elastic.epoch.caller == elastic.key:
                held.append(Held.now())
    run.finish()
    elastic.close()
    return Trained(trainee.params, losses, len(run.epochs), Held.early_and_late(held))


def _lost(changes: Sequence[Change]) -> int:
    return sum(len(one.lost) + len(one.returned) for one in changes)
