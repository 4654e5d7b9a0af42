"""The machine that a strategy asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tweed.aggregate import Each
from tweed.hub.machine.hub import Hub
from tweed.hub.machine.open_groups import Aggregation
from tweed.hub.wire.messages import Payload, Sum
from tweed.order import FirstIn
from tweed.strategy import Strategy

#: Transfers at once where the strategy has no order, and nobody knows how many members will come.
_AT_ONCE = 16


def hub_of(
    strategy: Strategy,
    members: int,
    value: Callable[[int, Payload], Any],
    missing: Callable[[int, Payload], Any] = lambda member, payload: None,
    total: Callable[[Sum], Any] = lambda message: message.value,
    sum_bytes: int = 0,
    able: set[int] | None = None,
) -> Hub:
    """The hub of a strategy that has one.

    Args:
      members: so many it counts on.
      value, missing, total: as of `Hub`.
      sum_bytes, able: as of `Aggregation`.
    """
    given = strategy.hub
    assert given is not None  # the caller looked
    return Hub(
        strategy.aggregate,
        given.when or Each(),
        strategy.order or FirstIn(max(members, _AT_ONCE)),
        tasks=given.tasks,
        task_s=given.task_s,
        payload_s=given.payload_s,
        patience=given.patience,
        value=value,
        missing=missing,
        total=total,
        aggregation=Aggregation(given.aggregators, sum_bytes, able) if given.aggregators else None,
    )
