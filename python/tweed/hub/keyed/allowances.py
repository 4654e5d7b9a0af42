"""What a hub lets each member send, and what it tells a member of others that a message names.

    the hub tells a member      it may send                     it is told
    Grant(number)               so many bytes as it offered
    Grant(number, via)          no more than before             where `via` listens, and its key
    Task(number, via)           no more than before             the same; and `via` is told who may fetch
    Gather(group, tasks)        a sum of these                  who will send what, by their keys
    Lend(version, member)       no more than before             the key of that member

Nothing here has a link or a clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tweed.errors import DataError
from tweed.hub.wire import bodies
from tweed.hub.wire.bodies import Part
from tweed.hub.wire.framing import SMALL_BYTES
from tweed.hub.wire.messages import (
    CancelGroup,
    FromHub,
    FromWorker,
    Gather,
    Grant,
    Leave,
    ModelGrant,
    Offer,
    Outcome,
    Payload,
    Resume,
    Sum,
    Task,
)


@dataclass(slots=True)
class Allowances:
    """See above. All that is kept of a member is by its number.

    Args:
      worker: of a member, which worker it is.

    Attributes:
      most_bytes: no contribution has more, as it crosses.
      numel: numbers of a sum.
      keys: who it is, 64 hex digits.
      places: where those listen that add up for others: "KEY@host:port".
    """

    worker: Callable[[int], int]
    most_bytes: int = 0
    numel: int = 0
    keys: dict[int, str] = field(default_factory=dict)
    places: dict[int, str] = field(default_factory=dict)
    _offered: dict[int, int] = field(default_factory=dict)  # bytes
    _granted: dict[int, int] = field(default_factory=dict)
    _model_bytes: dict[int, int] = field(default_factory=dict)  # of the last model that was sent
    _gathers: dict[int, dict[int, Gather]] = field(default_factory=dict)  # by group
    _sum_room: dict[int, int] = field(default_factory=dict)  # of a group that is void a sum may still come

    def joined(self, member: int, key: str, place: object) -> bool:
        """A member is there; `place` is what it says of where it listens. Returns whether it does."""
        self.keys[member] = key
        if isinstance(place, str) and 0 < len(place) < SMALL_BYTES:
            self.places[member] = f"{key}@{place}"
        return member in self.places

    def left(self, member: int) -> None:
        """Its link has ended: what is granted again is granted for the next one."""
        for known in (self.places, self._granted, self._gathers, self._sum_room):
            known.pop(member, None)

    def room(self, member: int) -> int:
        """A message of this member is never longer, without its head."""
        return max(SMALL_BYTES, self._granted.get(member, 0), self._sum_room.get(member, 0))

    def tell(self, member: int, message: FromHub, model_bytes: int) -> None:
        """A message goes to `member`, with a model of so many bytes."""
        if isinstance(message, Grant):
            self._granted[member] = self._offered.get(member, 0) if message.via is None else 0
        elif isinstance(message, Outcome):
            self._granted.pop(member, None)
        elif isinstance(message, Gather):
            self._gathers.setdefault(member, {})[message.group] = message
            room = bodies.sum_room(self.numel, len(message.tasks))
            self._sum_room[member] = max(room, self._sum_room.get(member, 0))
        elif isinstance(message, CancelGroup):
            self._gathers.get(member, {}).pop(message.group, None)
        elif isinstance(message, Task):
            self._model_bytes[member] = model_bytes

    def body(self, message: FromHub) -> bytes | None:
        """What comes behind the head of a message that names members; None: nothing."""
        if isinstance(message, Gather):
            norms = message.norms or [math.nan] * len(message.tasks)
            pairs = zip(message.tasks, norms, strict=True)
            return bodies.pack_parts([self._part(*task, norm) for task, norm in pairs])
        if isinstance(message, ModelGrant):
            return self.keys[message.member].encode()
        if not isinstance(message, Task | Grant) or message.via is None:
            return None
        return self.places.get(message.via, "").encode()

    def heard(self, member: int, message: FromWorker) -> FromWorker:
        """A message has come; with what only the hub knows. Raises DataError for a sum that cannot be."""
        if isinstance(message, Sum):
            self._check(member, message)
        elif isinstance(message, Offer | Resume):
            offer = message if isinstance(message, Offer) else message.offer
            self._offered[member] = min(offer.numbytes, self.most_bytes)
            if isinstance(message, Offer) and message.model_s:
                return replace(message, model_bytes=self._model_bytes.get(member, 0))
        elif isinstance(message, Payload | Leave):
            self._granted.pop(member, None)
        return message

    def _check(self, member: int, found: Sum) -> None:
        """A group may be void by now: then its sum is of no use, and no fault."""
        gather = self._gathers.get(member, {}).pop(found.group, None)
        named = [*found.tasks, *found.left_out]
        if gather is not None and not (len(set(named)) == len(named) and set(named) <= set(gather.tasks)):
            raise DataError(f"it was asked for the sum of {gather.tasks}, and sends one of {tuple(named)}")

    def _part(self, member: int, number: int, norm: float) -> Part:
        return Part(
            member, number, self.worker(member), self._offered.get(member, 0), self.keys[member], norm
        )
