"""Exceptions of a user's, at each moment at which a signal's handler may raise. Without pytest, as each rank
imports it.

CPython calls handlers when a function begins and when one in C has returned; a profiler is called then too.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor

import tweed
from tests.elastic.members import among
from tweed.data.sampler import GlobalOrder, Sampler
from tweed.elastic import Elastic, ElasticRun, group, start

_INSIDE = str(Path(tweed.__file__).parent)


class Interrupted(BaseException):
    """What a handler raises."""


class Interrupt:
    """A body that is interrupted at its n-th moment within tweed, from 1 on. A context manager.

    Attributes:
      came: it was.
    """

    def __init__(self, moment: int) -> None:
        self._left, self.came = moment, False

    def __enter__(self) -> Self:
        sys.setprofile(self._see)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        sys.setprofile(None)
        return self.came and kind is Interrupted

    def _see(self, frame: FrameType, event: str, arg: Any) -> None:
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(_INSIDE):
            self._left -= 1
            if self._left == 0:
                self.came = True
                sys.setprofile(None)
                raise Interrupted


class Interruptible:
    """A run whose step is called again when SIGUSR1 has broken it off.

    Attributes:
      came: how often it was.
    """

    def __init__(self, run: ElasticRun) -> None:
        self._run, self._within, self.came = run, False, 0
        signal.signal(signal.SIGUSR1, self._interrupt)

    def _interrupt(self, *_: object) -> None:
        if self._within:
            self._within, self.came = False, self.came + 1
            raise Interrupted

    def step(self, gradient: Callable[[Sequence[int]], Tensor]) -> Tensor:
        """See `ElasticRun.step`."""
        while True:
            try:
                self._within = True
                mean = self._run.step(gradient)
                self._within = False
                return mean
            except Interrupted:
                continue


def interrupted(rank: int, size: int, port: int, each: range) -> tuple[int, int, list[str]]:
    """The last rank is interrupted at each of these moments of a step, and then of the meeting that follows
    such an interruption; each gradient of step k is k + 1. Returns the steps, how many interruptions
    there were, and what was wrong."""
    group._AGAIN_S = 0.01  # nobody is lost here
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    control = start(store, rank, size, Elastic(1, size))
    model = torch.nn.Linear(1, 1)
    run = ElasticRun(control, Sampler(GlobalOrder(100), 10), {"model": model}, timeout_s=30)
    wrong, came, plan = list[str](), 0, _moments(each)
    moments: tuple[int, ...] = next(plan) if rank == size - 1 else ()

    def gradient(samples: Any) -> Tensor:
        over = float(rank == size - 1 and not moments)
        return torch.tensor([run.steps_done + 1.0, over]).repeat(2) * len(samples)

    mean, had = torch.zeros(2), 0
    while mean[1] == 0:
        found, hit = None, True
        for moment in moments:
            with Interrupt(moment) as interrupt:
                found = run.step(gradient)
            hit = interrupt.came
            came += hit
            if not hit:
                break
        if moments:
            moments = plan.send(hit)
        mean = run.step(gradient) if found is None else found
        had += 1
        if mean[0] != had or run.steps_done != had:
            wrong.append(f"mean {mean[0]} of step {had}, and {run.steps_done} count")
    run.finish()
    control.close()
    return had, came, wrong


def _moments(each: range) -> Any:
    """Of each step, at which it is interrupted in turn; is sent whether the last of them came."""
    for moment in each:
        if not (yield (moment,)):
            break
    within = moment // 2
    for moment in each:
        if not (yield (within, moment)):
            break
    yield ()


def interrupted_joiner(rank: int, size: int, port: int, moments: Sequence[int]) -> tuple[int, int, list[str]]:
    """The last rank joins the others, and is interrupted at these moments of its calls, one after the other.
    Returns as `interrupted` does; the steps are those that count."""
    group._AGAIN_S = 0.01  # nobody is lost here
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    joins, left, together = rank == size - 1, list(moments) if rank == size - 1 else [], 0
    if joins:
        store.wait(["joins"])
    control = among(store, rank, size - 1, Elastic(1, size))
    run = ElasticRun(control, Sampler(GlobalOrder(100), 10), {"model": torch.nn.Linear(9, 9)}, timeout_s=30)
    mean, came, wrong = torch.zeros(2), 0, list[str]()

    def gradient(samples: Sequence[int]) -> Tensor:
        return torch.tensor([run.steps_done + 1.0, float(together > 3)]) * len(samples)

    while mean[1] == 0:
        if (rank, run.steps_done) == (0, 10):
            store.set("joins", "")
        with Interrupt(left.pop(0) if left else sys.maxsize) as interrupt:
            mean = run.step(gradient)
        came += interrupt.came
        if not interrupt.came and mean[0] != run.steps_done:
            wrong.append(f"mean {mean[0]} of step {run.steps_done}")
        together += joins and bool(run.epochs) and not left
    run.finish()
    control.close()
    return run.steps_done, came, wrong
