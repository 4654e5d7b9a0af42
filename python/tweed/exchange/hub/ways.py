"""A member's links to other members: it sends to them what they add up, and fetches the newest model.

    with a payload  this member                    an aggregator
                    Offer(number, bytes)      ->   waits until the hub has named this member and task
                                              <-   Grant(number)
                    Payload(number)           ->
    without         Fetch(version)            ->   a holder waits until the hub has named this member
                                              <-   Handed(version, there), with the model

Where a member listens, and under which key, its hub says. A link is kept until it breaks. When it does, or
cannot be had, what was under way over it is blocked: the worker tells the hub, which names another way.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from tweed.errors import DataError, PeerLost, UsageError
from tweed.exchange.hub.address import HubAddress
from tweed.exchange.hub.framing import SMALL_BYTES, framed, split
from tweed.exchange.hub.head import HEAD, from_way
from tweed.exchange.hub.messages import Blocked, Fetch, FromWay, Grant, Handed, Offer, Payload

log = logging.getLogger("tweed")
_NOTHING = torch.empty(0, dtype=torch.uint8)
#: What a worker hears, and the model that came with it, or nothing.
Heard = tuple[FromWay, Tensor]


class Links(Protocol):
    """What is needed of `_core.HubLinks`."""

    def call(self, address: str, key: str | None = None) -> int:
        """Opens a link."""
        ...

    def send(self, link: int, head: bytes, body: bytes | None = None) -> None:
        """Begins to send."""

    def allow(self, link: int, most_bytes: int) -> None:
        """Messages may be so long."""

    def cut(self, link: int, why: str) -> None:
        """Ends a link."""


class Ways:
    """See above. One thing is under way at a time, as a worker has one task.

    Attributes:
      most_bytes: no model has more, as it crosses.
    """

    def __init__(self, links: Links) -> None:
        self.most_bytes = 0
        self._links = links
        self._places: dict[int, HubAddress | None] = {}  # by member
        self._link_of: dict[HubAddress, int] = {}
        self._under_way: tuple[int, Payload | Fetch] | None = None  # over which link

    def named(self, member: int, place: HubAddress | None) -> None:
        """The hub has said where `member` listens; None: it is gone."""
        self._places[member] = place

    def send(self, message: Payload | Fetch) -> Sequence[Heard]:
        """Begins to send to the member `via`, or to fetch from it. Returns what the worker hears of that."""
        self.give_up()
        assert message.via is not None  # else it goes to the hub
        link = self._link(message.via)
        if link is None:
            return [_failed(message)]
        self._under_way = link, message
        if isinstance(message, Payload):
            self._links.send(link, framed(Offer(message.number, message.value.numel())))
        else:
            self._links.allow(link, HEAD.size + max(SMALL_BYTES, self.most_bytes))
            self._links.send(link, framed(message))
        return []

    def give_up(self) -> None:
        """What is under way is not wanted any more."""
        if self._under_way is not None and isinstance(self._under_way[1], Payload):
            self._end(self._under_way[0], "it goes another way")
        self._under_way = None

    def done(self) -> None:
        """What was under way has arrived."""
        self._under_way = None

    def reset(self) -> None:
        """The link to the hub has broken: it names ways anew."""
        for link in list(self._link_of.values()):
            self._end(link, "the link to the hub has broken")
        self._under_way = None

    def owns(self, link: int) -> bool:
        """Whether that is a link to another member, which this one has called."""
        return link in self._link_of.values()

    def heard(self, link: int, what: bytearray | str) -> Sequence[Heard]:
        """What a link has brought, or why it has ended. Returns what the worker hears of that."""
        if not self.owns(link):
            return []
        if isinstance(what, str):
            return self._lost(link, what)
        try:
            return self._message(link, *split(what))
        except DataError as error:
            return self._lost(link, str(error))

    def _message(self, link: int, head: Sequence[float], body: Tensor) -> Sequence[Heard]:
        message = from_way(head)
        wanted = self._under_way[1] if self._under_way is not None and self._under_way[0] == link else None
        if isinstance(message, Grant):
            if isinstance(wanted, Payload) and wanted.number == message.number:
                self._links.send(link, *_payload(wanted))
            return []
        if not (isinstance(wanted, Fetch) and wanted.version == message.version):
            return []
        self._under_way = None
        self._links.allow(link, HEAD.size + SMALL_BYTES)
        return [(message, body)]

    def _link(self, member: int) -> int | None:
        place = self._places.get(member)
        if place is None:
            return None
        if place not in self._link_of:
            try:
                self._link_of[place] = self._links.call(place.place, place.key)
            except (PeerLost, UsageError) as error:
                log.warning("member %d cannot be reached, and the hub names another way: %s", member, error)
                return None
        return self._link_of[place]

    def _lost(self, link: int, why: str) -> Sequence[Heard]:
        self._end(link, why)
        under_way, self._under_way = self._under_way, None
        if under_way is None or under_way[0] != link:
            self._under_way = under_way
            return []
        log.warning("the link to member %s has ended; the hub names another way: %s", under_way[1].via, why)
        return [_failed(under_way[1])]

    def _end(self, link: int, why: str) -> None:
        self._link_of = {place: one for place, one in self._link_of.items() if one != link}
        self._links.cut(link, why)


def _failed(message: Payload | Fetch) -> Heard:
    lost: FromWay = (
        Blocked(message.number) if isinstance(message, Payload) else Handed(message.version, False)
    )
    return lost, _NOTHING


def _payload(message: Payload) -> tuple[bytes, bytes]:
    body = message.value.numpy().tobytes()
    return framed(message, len(body)), body
