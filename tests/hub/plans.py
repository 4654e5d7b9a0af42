"""Plans in the place of measured ones: rates over loopback say nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tweed.hub.machine.grouping import Group
from tweed.hub.machine.open_groups import Aggregation

#: So long the hub's link counts as busy after a plan, so that there is something to plan together.
_BUSY_S = 0.01


class Plans:
    """All that is pending goes via who offered it, and so do models.

    Attributes:
      grouped: contributions, by group.
      lent: models that were to be fetched from other members.
    """

    def __init__(self) -> None:
        self.grouped: list[int] = []
        self.lent = 0

    def plan(
        self, aggregation: Aggregation, pending: Sequence[Any], idle: Iterable[int], now: float
    ) -> tuple[Group, ...]:
        free = [*aggregation._free(idle, now)]
        if not free:
            return (Group(None, 0, len(pending)),)
        aggregation.free_s = now + _BUSY_S
        self.grouped.append(len(pending))
        return (Group(free[0], 0, len(pending)),)

    def model_sources(self, aggregation: Aggregation, some: Sequence[int], now: float) -> dict[int, int]:
        free = [one for one in aggregation._free(some, now) if one in some]
        self.lent += len(some) - 1 if free else 0
        return {one: free[0] for one in some if one != free[0]} if free else {}

    def put(self, patch: Callable[[type, str, Any], None] = setattr) -> None:
        """From now on, in this process."""
        patch(Aggregation, "plan", lambda one, *given: self.plan(one, *given))
        patch(Aggregation, "model_sources", lambda one, *given: self.model_sources(one, *given))
