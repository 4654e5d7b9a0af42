"""When a hub commits: after each contribution, after several, by a quorum, in rounds, or when all are there.

when.ready(arrived, members, waited_s)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from tweed.errors import UsageError


@runtime_checkable
class CommitRule(Protocol):
    """When what has arrived becomes an update.

    Attributes:
      in_step: a member whose contribution has arrived gets its next task after the commit.
      one_by_one: each contribution is an update of its own.
    """

    __slots__ = ()
    one_by_one: ClassVar[bool] = False
    in_step: ClassVar[bool] = False

    @property
    def within_s(self) -> float:
        """The seconds after the first contribution when it is time in any case; infinite: never."""
        return math.inf

    @property
    def round(self) -> int | None:
        """How many tasks are handed out for one update; None: all who want a task get one."""
        return None

    def ready(self, arrived: int, members: int) -> bool:
        """Whether it is time.

        Args:
          arrived: contributions, at least one.
          members: that are linked, or have a task.
        """
        ...


@dataclass(frozen=True, slots=True)
class Each(CommitRule):
    """Commits after each contribution."""

    one_by_one: ClassVar[bool] = True

    def ready(self, arrived: int, members: int) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Cache(CommitRule):
    """Commits after `size` contributions, or after those of all members if there are fewer. Who has
    contributed goes on meanwhile.

    Source: Nguyen et al., "Federated learning with buffered asynchronous aggregation", 2022 (FedBuff);
      TEASQ-Fed's cache.
    """

    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise UsageError(f"{self!r}: size is to be at least 1")

    def ready(self, arrived: int, members: int) -> bool:
        return arrived >= min(self.size, members)


@dataclass(frozen=True, slots=True)
class Quorum(CommitRule):
    """Commits as soon as `count` contributions are there, or `within_s` seconds after the first one; the
    others wait for the commit.

    What comes later counts in the next update.
    """

    count: int
    within_s: float = math.inf
    in_step: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.count < 1 or not self.within_s > 0:
            raise UsageError(f"{self!r}: count is to be at least 1, within_s above 0")

    def ready(self, arrived: int, members: int) -> bool:
        return arrived >= min(self.count, members)


@dataclass(frozen=True, slots=True)
class Round(CommitRule):
    """Commits in rounds: `size` members get a task on one version, those who have waited longest, and all of
    these are waited for. A member whose lease ends is replaced.

    Source: McMahan et al., "Communication-efficient learning of deep networks from decentralized data", 2017
      (FedAvg); there members are drawn.
    """

    size: int
    in_step: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.size < 1:
            raise UsageError(f"{self!r}: size is to be at least 1")

    @property
    def round(self) -> int:
        return self.size

    def ready(self, arrived: int, members: int) -> bool:
        return arrived >= min(self.size, members)


@dataclass(frozen=True, slots=True)
class All(CommitRule):
    """Commits when each member's contribution is there: training in step."""

    in_step: ClassVar[bool] = True

    def ready(self, arrived: int, members: int) -> bool:
        return arrived >= members
