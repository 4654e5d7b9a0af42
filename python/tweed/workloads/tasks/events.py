"""What the planner is told, what it wants to be done, who does it, and why all is over."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, NamedTuple, Protocol, Self


class Ready(NamedTuple):
    """The process of a worker is ready for its first task."""

    worker: int


class Returned(NamedTuple):
    """A copy returned a result."""

    copy: int
    value: Any


class Raised(NamedTuple):
    """A copy raised an error; `text` holds its traceback."""

    copy: int
    text: str


class Lost(NamedTuple):
    """The process of a worker has ended; `why` says how."""

    worker: int
    why: str


class Enough(NamedTuple):
    """The caller needs no more results."""


Event = Ready | Returned | Raised | Lost | Enough


class Run(NamedTuple):
    """A worker is to run a copy of a task."""

    worker: int
    copy: int
    task: int


class Replace(NamedTuple):
    """The process of a worker is to be ended, if it has not, and another one started in its place."""

    worker: int


Action = Run | Replace


class Why(Enum):
    """Why all is over."""

    COMPLETE = "every task is counted"
    ENOUGH = "the caller has enough"
    RAISED = "a task raised an error"
    FATAL = "a task has lost too many processes"
    NO_WORKERS = "no worker is left"
    DEADLINE = "the deadline has passed"


class End(NamedTuple):
    """All is over.

    Attributes:
      task: the one that it is due to, if it is due to one.
      text: what was said of that: a traceback, or how a process ended.
    """

    why: Why
    task: int | None = None
    text: str = ""


class Workers(Protocol):
    """Processes that run tasks, wherever they are, for one map after the other.

    A context manager: leaving it ends all of them.

    Attributes:
      count: how many there are, numbered from 0.
    """

    @property
    def count(self) -> int: ...

    def check(self, name: str) -> None:
        """Raises UsageError if no worker can be started, or none would find the function of this name."""

    def begin(self, setup: bytearray, payloads: list[bytearray]) -> None:
        """A map begins: each worker gets `setup`, see `worker`, and says that it is ready for this one.

        Args:
          payloads: by task, as they are sent.
        """

    def finish(self, busy: Iterable[int]) -> None:
        """The map is over: ends the processes of workers that still run a task of it. Does not wait.

        Others take their places when the next map begins: the results of this one are not held up.
        """

    def run(self, number: int, copy: int, task: int) -> None:
        """Gives a worker a copy of a task. Does not wait; a worker that has ended gets nothing."""

    def replace(self, number: int) -> None:
        """Ends the worker's process, if it runs, and starts another one."""

    def wait(self, timeout_s: float | None) -> list[Event]:
        """What has happened, after waiting for something for `timeout_s` at most (None: without limit)."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...
