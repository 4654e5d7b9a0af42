"""What a map of tasks raises at its end, in words."""

from __future__ import annotations

from tweed.errors import DeadlineExceeded, PeerLost, TaskFailed, TweedError
from tweed.workloads.tasks.events import Why
from tweed.workloads.tasks.planner import Planner

_SHOWN = 5  # tasks that are named


def failure(planner: Planner, name: str, began: float, now: float) -> TweedError | None:
    """The error of a planner that has ended; None if it has what was wanted.

    Args:
      name: the function's.
      began, now: on the planner's clock.
    """
    end = planner.end
    assert end is not None  # it was driven to its end
    which = f"task {end.task} of {planner.tasks} ({name})"
    match end.why:
        case Why.COMPLETE | Why.ENOUGH:
            return None
        case Why.RAISED:
            return TaskFailed(f"{which} failed:\n{end.text}", end.task)
        case Why.FATAL:
            lost = f"{which} has ended {planner.most_losses} processes; the last one {end.text}"
            return TaskFailed(f"{lost}. Call the function with this payload alone, to see why", end.task)
        case Why.NO_WORKERS:
            left = f"none of {planner.workers} workers is left, and {_missing(planner)} are not done"
            return PeerLost(f"{left}: each ended before it was ready, the last one {end.text}")
        case Why.DEADLINE:
            late = f"after {planner.deadline - began:g} s, the deadline, {name} has {_missing(planner)} to do"
            return DeadlineExceeded(f"{late}; {_running(planner, now)}. Give more time, or more workers")


def _missing(planner: Planner) -> str:
    return f"{planner.tasks - len(planner.results)} of {planner.tasks} tasks"


def _running(planner: Planner, now: float) -> str:
    """The tasks under way, and for how long they have been."""
    since = {copy.task: copy.since for copy in reversed(planner.under_way())}
    if not since:
        return "none was under way, as workers had not started yet"
    oldest = sorted(since, key=lambda task: since[task])
    shown = ", ".join(f"task {task} for {now - since[task]:.1f} s" for task in oldest[:_SHOWN])
    return f"under way were {shown}" + (f" and {len(oldest) - _SHOWN} more" if len(oldest) > _SHOWN else "")
