"""`map_tasks`: a function over many payloads, on worker processes."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any

from tweed.errors import UsageError
from tweed.exchange.encoding import packed
from tweed.workloads.tasks.events import Enough, Run, Workers
from tweed.workloads.tasks.failures import failure
from tweed.workloads.tasks.functions import name_of
from tweed.workloads.tasks.lateness import Lateness
from tweed.workloads.tasks.local import LocalWorkers
from tweed.workloads.tasks.planner import Planner

#: Tells the caller how many tasks are counted, and of how many.
Progress = Callable[[int, int], None]


def map_tasks(  # noqa: PLR0913 - options of a user, by their names
    function: Callable[..., Any] | str,
    payloads: Iterable[Any],
    *,
    shared: Any = None,
    enough: Callable[[Mapping[int, Any]], bool] | None = None,
    workers: int | Workers | None = None,
    speculation: bool = True,
    deadline_s: float | None = None,
    progress: Progress | None = None,
) -> dict[int, Any]:
    """Runs `function(payload)` for each payload, on worker processes that may straggle and die.

    A task runs at least once and counts once: those of a lost worker go to others, and one that is late is
    run by a second worker as well. So the function is to be pure: its result depends on its arguments alone.

    Args:
      function: at the top of a module, or its name, such as "math:sqrt".
      payloads: plain values, tensors, numpy's arrays and scalars, and dicts, lists, tuples and sets of them.
        Task i has payload i.
      shared: the same for all tasks, sent once to each worker: then `function(payload, shared)` is called.
      enough: is called with the results so far, by task, after each that counts. True: no more are needed,
        and what still runs is ended.
      workers: how many processes are started; None: as many as this process may use cores; or workers that
        stand, for many maps: `LocalWorkers`, or `RayWorkers` on a Ray cluster.
      speculation: whether a task that is late is run by a second worker as well.
      deadline_s: seconds that all of it may take; None: without limit. A first call waits for the fork server
        in any case.
      progress: is called with how many tasks are counted, and how many there are: see `progress_bar`.

    Returns: results by task, in the order of tasks; without those that were not needed.
    Raises:
      UsageError: nothing was started: workers would not find the function, or a payload cannot be sent.
      TaskFailed: a task raised an error or returned what cannot be sent, with its traceback; or it ended
        three processes.
      PeerLost: no worker is left: each has ended three times before it was ready.
      DeadlineExceeded: names the tasks that were under way, and since when.
    In each case no process of its own is left, and standing workers have nothing to do.

    Cost: all payloads in memory as bytes, `shared` once per worker, some 20 ms per worker, and seconds for
      the first call of a process, which starts the fork server. Each task takes a message there and one back.

    Example:
      >>> map_tasks("math:factorial", [3, 4, 5], workers=2)
      {0: 6, 1: 24, 2: 120}
    """
    began = time.monotonic()
    if deadline_s is not None and not deadline_s > 0:
        raise UsageError(f"a deadline of {deadline_s} s cannot be: give seconds above 0")
    name = name_of(function)
    if not (workers is None or isinstance(workers, int)):
        workers.check(name)
    messages = [_sendable(payload, f"payload {task}") for task, payload in enumerate(payloads)]
    setup = _sendable((name, shared is not None, shared), "what is shared")
    if not messages:
        return {}
    with _standing(workers, len(messages)) as standing:
        lateness = Lateness() if speculation else Lateness(math.inf)
        planner = Planner(len(messages), standing.count, began + (deadline_s or math.inf), lateness=lateness)
        standing.begin(setup, messages)
        try:
            _drive(planner, standing, enough, progress)
        finally:
            if standing is workers:
                standing.finish([number for number in range(standing.count) if planner.is_busy(number)])
    if error := failure(planner, name, began, time.monotonic()):
        raise error
    return dict(sorted(planner.results.items()))


def _standing(workers: int | Workers | None, tasks: int) -> AbstractContextManager[Workers]:
    """These workers, or processes for one map, no more than it has tasks."""
    if workers is None or isinstance(workers, int):
        return LocalWorkers(min(len(os.sched_getaffinity(0)) if workers is None else workers, tasks))
    return nullcontext(workers)


def _sendable(value: Any, what: str) -> bytearray:
    try:
        return packed(value, classes=())
    except (UsageError, ValueError, RecursionError) as error:
        raise UsageError(f"{what} cannot be sent to workers, nothing was started: {error}") from None


def _drive(
    planner: Planner,
    workers: Workers,
    enough: Callable[[Mapping[int, Any]], bool] | None,
    progress: Progress | None,
) -> None:
    """Carries out what the planner decides, and tells it what happens, until all is over."""
    while planner.end is None:
        for action in planner.poll(time.monotonic()):
            if isinstance(action, Run):
                workers.run(*action)
            else:
                workers.replace(action.worker)
        if planner.end is not None:
            return
        counted, wait_s = len(planner.results), max(0.0, planner.next_at() - time.monotonic())
        for event in workers.wait(None if wait_s == math.inf else wait_s):
            planner.handle(event, time.monotonic())
            if len(planner.results) > counted:
                counted = len(planner.results)
                _tell(planner, enough, progress)


def _tell(
    planner: Planner,
    enough: Callable[[Mapping[int, Any]], bool] | None,
    progress: Progress | None,
) -> None:
    """Another result counts: the caller hears so, and may have enough."""
    if progress is not None:
        progress(len(planner.results), planner.tasks)
    if enough is not None and enough(MappingProxyType(planner.results)):
        planner.handle(Enough(), time.monotonic())
