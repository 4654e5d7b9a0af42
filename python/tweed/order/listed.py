"""One order for all ranks, from a list."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from tweed.errors import UsageError
from tweed.order.base import Event, Offered, Send, Transfer, Withdrawn
from tweed.order.priority import Queue, Ranked


@dataclass(slots=True)
class Position(Queue):
    """A state.

    Attributes:
      turn: the place in the list of the next one that may be sent.
      skipped: what was withdrawn before its turn.
    """

    turn: int = 0
    skipped: set[Hashable] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Listed(Ranked[Position]):
    """As a list says, step by step: whoever's turn it is is waited for.

    Sums are matched by the order of their calls, so all ranks need one order, which goes by nobody's clock.
    Rank 0 makes the list, and all keep to it until the next one.

    Args:
      keys: of one step, in their order.
      window_bytes: under way together; see `Credit`.

    Raises: UsageError for a key that is there twice; when it is offered, for one that is not there.

    Example:
      >>> order = Listed(("b", "a"))
      >>> state = order.handle(Offered(Transfer("a", 1)), order.start(), 0.0)
      >>> order.poll(state, 0.0)[0]  # "b" comes first
      >>> state = order.handle(Offered(Transfer("b", 1)), state, 0.0)
      >>> order.poll(state, 0.0)[0]
      Send(key='b')
    """

    keys: tuple[Hashable, ...]
    window_bytes: int = 16_000_000
    places: dict[Hashable, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "places", {key: place for place, key in enumerate(self.keys)})
        if not self.keys or len(self.places) < len(self.keys) or self.window_bytes < 1:
            raise UsageError("a list has each key once, and at least one, and window_bytes is at least 1")

    def rank(self, transfer: Transfer) -> float:
        return self.places[transfer.key]

    def start(self) -> Position:
        return Position()

    def handle(self, event: Event, state: Position, now: float) -> Position:
        if isinstance(event, Offered) and event.transfer.key not in self.places:
            raise UsageError(f"{event.transfer.key!r} is not in the list: make a new one of what is sent now")
        state = Ranked.handle(self, event, state, now)
        if isinstance(event, Withdrawn) and event.key in self.places:
            state.skipped.add(event.key)
            self._skip(state)
        return state

    def has_room(self, transfer: Transfer, state: Position, now: float) -> bool:
        fits = not state.under_way or state.bytes_under_way + transfer.numbytes <= self.window_bytes
        return fits and transfer.key == self.keys[state.turn]

    def poll(self, state: Position, now: float) -> tuple[Send | None, Position]:
        decision, state = Ranked.poll(self, state, now)
        if decision is not None:
            state.turn = (state.turn + 1) % len(self.keys)
            self._skip(state)
        return decision, state

    def _skip(self, state: Position) -> None:
        """Goes on to one that was not withdrawn."""
        while self.keys[state.turn] in state.skipped:
            state.skipped.remove(self.keys[state.turn])
            state.turn = (state.turn + 1) % len(self.keys)
