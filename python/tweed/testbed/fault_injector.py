"""Does to processes that run what a plan of faults says.

    injector = FaultInjector(plan, members, lambda member: pid(folder, member), bed=bed, folder=folder)
    with injector:
        while not injector.done:
            injector.turn(step, ready)

The processes go on by themselves; `turn` is called again and again, and never waits. Leaving the block ends
faults that last: who is stopped goes on, links and disks are as they were.
"""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from tweed.testbed import restarts
from tweed.testbed.faults import Fault, Kind, Plan, Progress
from tweed.testbed.live_network import LiveNetwork


class FaultInjector:
    """See the module. A context manager.

    Args:
      plan: what is to happen.
      members: numbers of members are below it.
      pid: of a member's process, by its number.
      bed: where they live, for cuts. Its ranks are the members.
      folder: of their lives (`tweed.testbed.restarts`), for clocks.
      full_disks: they write to no files but those that are to fail.

    Attributes:
      done: all faults have begun and are over.
      log: each fault that has begun, with the second of `time.monotonic` at which it did.

    Raises: UsageError if something in the plan cannot be done to them.
    """

    def __init__(
        self,
        plan: Plan,
        members: int,
        pid: Callable[[int], int],
        *,
        bed: LiveNetwork | None = None,
        folder: Path | None = None,
        full_disks: bool = False,
    ) -> None:
        able: dict[Kind, bool] = {
            "kill": True, "stop": True, "disk": full_disks, "cut": bed is not None,
            "clock": folder is not None,
        }  # fmt: skip
        plan.require([kind for kind, is_able in able.items() if is_able], "to these processes", members)
        self._pid, self._bed, self._folder = pid, bed, folder
        self._progress: Progress | None = None
        self._plan = plan
        self.log: list[tuple[float, Fault]] = []

    @property
    def done(self) -> bool:
        """All faults have begun and are over."""
        return self._progress is not None and self._progress.done

    def turn(self, step: int, ready: Callable[[Fault], bool] = lambda fault: True) -> Fault | None:
        """Ends what is over, and begins what is due. Returns what has begun.

        Args:
          step: how many members have counted.
          ready: whether those that it befalls are in, and may be spared; else it waits.
        """
        now = time.monotonic()
        if self._progress is None:
            self._progress = Progress(self._plan, now, step)
        for ended in self._progress.over(now):
            self._end(ended)
        fault = self._progress.due(now, step)
        if fault is None or not ready(fault):
            return None
        self._begin(fault)
        self._progress.begun(now, step)
        self.log.append((now, fault))
        return fault

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for fault in self._progress.over(float("inf")) if self._progress is not None else ():
            self._end(fault)

    def _begin(self, fault: Fault) -> None:
        match fault.kind:
            case "kill":
                self._signal(fault, signal.SIGKILL)
            case "stop":
                self._signal(fault, signal.SIGSTOP)
            case "disk":
                self._limit(fault, 0)
            case "cut":
                assert self._bed is not None  # as was asked for at the begin
                for way in _ways(fault):
                    self._bed.cut_way(*way)
            case "clock":
                assert self._folder is not None
                restarts.set_clock(self._folder, fault.members[0], fault.seconds)

    def _end(self, fault: Fault) -> None:
        match fault.kind:
            case "stop":
                self._signal(fault, signal.SIGCONT)
            case "disk":
                self._limit(fault, None)
            case "cut":
                assert self._bed is not None
                for way in _ways(fault):
                    self._bed.heal_way(*way)

    def _signal(self, fault: Fault, number: signal.Signals) -> None:
        for member in fault.members:
            with suppress(ProcessLookupError):
                os.kill(self._pid(member), number)

    def _limit(self, fault: Fault, most_bytes: int | None) -> None:
        """No file may grow beyond it: a full disk for one process, without a disk of its own. The kernel says
        EFBIG in the place of ENOSPC."""
        with suppress(ProcessLookupError):
            pid = self._pid(fault.members[0])
            _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard if most_bytes is None else most_bytes, hard))


def _ways(fault: Fault) -> list[tuple[int, int]]:
    a, b = fault.members
    return [(a, b)] if fault.one_way else [(a, b), (b, a)]
