"""Whose transfer is next: the stage `order`, with its state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tweed.order import Order, Send
from tweed.order.base import Event


@dataclass(slots=True)
class TransferSchedule:
    """Says whose transfer is next. Transfers are told apart by a member and the number of its task."""

    order: Order[Any]
    state: Any = field(init=False)

    def __post_init__(self) -> None:
        self.state = self.order.start()

    def handle(self, event: Event, now: float) -> None:
        """Something has happened to a transfer, or to the model."""
        self.state = self.order.handle(event, self.state, now)

    def next(self, now: float) -> tuple[int, bool] | None:
        """A member, and whether what it has offered may be sent, or is dropped; None: nobody's turn."""
        decision, self.state = self.order.poll(self.state, now)
        if decision is None:
            return None
        assert isinstance(decision.key, tuple)  # see the class
        return decision.key[0], isinstance(decision, Send)
