"""Payloads that come with their offers, as MPI's eager protocol sends short messages.

    the hub sends       of the member is kept           the member
    Task(eager_bytes)   nothing                         sends the payload with an offer of no more bytes
    Grant               nothing: the payload arrives    hears nothing
    Outcome             nothing: the payload is dropped hears it

The machine hears of an offer, grants it, and hears of the payload, as if that had come after the grant. A
member that sends its offer alone, as over a link that is new, is granted it and asked for the payload.

Nothing here has a link or a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from tweed.hub.wire.messages import Grant, Offer, Payload
from tweed.strategy import Strategy

#: A payload of no more bytes goes with its offer, and of no more members at once: 16 MB of a hub's memory.
_MOST_BYTES, _MOST_MEMBERS = 1 << 18, 64


def eager_bytes(strategy: Strategy) -> int:
    """The most bytes of a payload that may come with its offer, at the hub of `strategy`; 0: none may.

    With an order, and with aggregators, the hub first decides what moves, and which way.
    """
    free = strategy.order is None and strategy.hub is not None and not strategy.hub.aggregators
    return _MOST_BYTES if free else 0


@dataclass(slots=True)
class EagerPayloads:
    """See above. All that is kept of a member is by its number.

    Args:
      most_bytes: of a payload.

    Attributes:
      arrived: payloads that were granted, with their members; whoever hands them on removes them.
    """

    most_bytes: int = 0
    arrived: list[tuple[int, Payload]] = field(default_factory=list)
    _allowed: dict[int, int] = field(default_factory=dict)  # bytes that the next offer may bring
    _kept: dict[int, Payload] = field(default_factory=dict)

    def allow(self, member: int) -> int:
        """A task goes to `member`. Returns how many bytes may come with the offer for it."""
        if member not in self._allowed and len(self._allowed) + len(self._kept) >= _MOST_MEMBERS:
            return 0
        self._allowed[member] = self.most_bytes
        return self.most_bytes

    def room(self, member: int) -> int:
        """An offer of `member` never brings more bytes."""
        return self._allowed.get(member, 0)

    def offered(self, member: int, offer: Offer, body: Tensor) -> None:
        """An offer has come with `body`, `[bytes]` uint8, which is dropped unless it was allowed."""
        allowed = self._allowed.pop(member, 0)
        if 0 < offer.numbytes == body.numel() <= allowed:
            self._kept[member] = Payload(offer.number, body)

    def granted(self, member: int, grant: Grant) -> bool:
        """What was offered may move. Returns whether it has arrived; if not, or if it is to go another way,
        the member is to hear of the grant."""
        payload = self._kept.pop(member, None)
        here = grant.via is None and not grant.copy_first
        if payload is None or payload.number != grant.number or not here:
            return False
        self.arrived.append((member, payload))
        return True

    def over(self, member: int) -> None:
        """The task of `member` is over, or its link has ended."""
        self._allowed.pop(member, None)
        self._kept.pop(member, None)
