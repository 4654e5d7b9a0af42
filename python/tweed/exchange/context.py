"""The context of training: where a process stands among those that train one model, in a group or without."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from tweed.exchange.communicator import Stats
from tweed.exchange.losses import Losses
from tweed.exchange.owners import Owners


class Context(Protocol):
    """What a run needs of it; see `Communicator` for what is said of groups.

    Attributes:
      owners: who contributes, and who aggregates.
      stats: counters of the run.
      losses: what the transport loses; None if it loses nothing.
    """

    stats: Stats
    owners: Owners
    losses: Losses | None

    def broadcast(self, tensors: Sequence[Tensor], root: int | None = None) -> list[Any]:
        """Begins to send the `tensors` of the rank `root`, or of the first worker, to everybody. Hand the
        result to `receive`."""
        ...

    def receive(self, pending: Iterable[Any]) -> None:
        """Waits for `broadcast` and puts what came into the tensors."""

    def end_exchange(self) -> None:
        """Counts an exchange that has ended."""

    def break_off(self) -> None:
        """An exchange was broken off here, as by Ctrl-C: the group's calls end at all ranks, as this one
        would meet the next call of the others with another of its own."""

    def plan(self) -> str | None:
        """The group's choice of schedules, if there is one and it is shown."""
        ...

    def close(self) -> None:
        """Ends what is this run's own."""


@dataclass(slots=True)
class Ungrouped:
    """The context of a process without a group, which reaches the others by links of its own. The model comes
    over these too.

    Args:
      stats: counters of the run.
      owners: of which this process is one.
    """

    stats: Stats
    owners: Owners
    losses: Losses | None = field(default=None, init=False)

    def broadcast(self, tensors: Sequence[Tensor], root: int | None = None) -> list[Any]:
        """Nothing: the model comes over links."""
        return []

    def receive(self, pending: Iterable[Any]) -> None:
        """Does nothing, as nothing is pending."""

    def end_exchange(self) -> None:
        self.stats.exchanges += 1

    def break_off(self) -> None:
        """Nothing: links and members begin anew by themselves."""

    def plan(self) -> str | None:
        """None: there are no schedules."""
        return None

    def close(self) -> None:
        """Nothing: links are closed by whoever has them."""
