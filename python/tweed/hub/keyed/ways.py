"""A member's links to other members: it sends to them what they add up, and fetches the newest model.

    with a payload  this member                    an aggregator
                    Offer(number, bytes)      ->   waits until the hub has named this member and task
                                              <-   Grant(number)
                    Payload(number)           ->
    without         ModelRequest(version)     ->   a source waits until the hub has named this member
                                              <-   Handed(version, there), with the model

Where a member listens, and under which key, its hub says. It is called on a thread of the call's own, so
that whoever drives goes on meanwhile. A link is kept until it breaks. When it does, or cannot be had about as
soon as that to the hub was, what was to go over it is blocked: the worker tells the hub, which names another
way. A link that comes about later is kept for the next time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from tweed.errors import DataError, UsageError
from tweed.hub.wire.framing import SMALL_BYTES, framed, split
from tweed.hub.wire.head import HEAD, from_way
from tweed.hub.wire.messages import Blocked, FromWay, Grant, Handed, ModelRequest, Offer, Payload
from tweed.links.address import HubAddress
from tweed.links.dialer import Caller, Dialer

log = logging.getLogger("tweed")
_NOTHING = torch.empty(0, dtype=torch.uint8)
#: What a worker hears, and the model that came with it, or nothing.
Heard = tuple[FromWay, Tensor]
#: A member that was named is given so many times as long as the hub took to be called, and never less than so
#: many seconds.
_TIMES, _LEAST_S = 4.0, 0.5
_NEVER_S = 3600.0


class Links(Caller, Protocol):
    """What is needed of `_core.HubLinks`."""

    def send(self, link: int, head: bytes, body: bytes | None = None) -> None:
        """Begins to send a message over a link."""

    def allow(self, link: int, most_bytes: int) -> None:
        """Messages may be so long."""

    def cut(self, link: int, why: str) -> None:
        """Ends a link, and says why."""


class _Waiting(NamedTuple):
    """What goes over a link as soon as there is one, if that is before `until`."""

    place: HubAddress
    message: Payload | ModelRequest
    until: float


class Ways:
    """See above. One thing is under way at a time, as a worker has one task. Times are in seconds.

    Attributes:
      most_bytes: no model has more, as it crosses.
      hub_s: so long the hub took to be called.
      made: called with each link that has come about.
    """

    def __init__(self, links: Links) -> None:
        self.most_bytes, self.hub_s = 0, 0.0
        self.made: Callable[[int], None] = lambda link: None
        self._links = links
        self._dialers: dict[HubAddress, Dialer] = {}
        self._waiting: _Waiting | None = None
        self._places: dict[int, HubAddress | None] = {}  # by member
        self._link_of: dict[HubAddress, int] = {}
        self._under_way: tuple[int, Payload | ModelRequest] | None = None  # over which link

    def named(self, member: int, place: HubAddress | None) -> None:
        """The hub has said where `member` listens; None: it is gone."""
        self._places[member] = place

    def send(self, message: Payload | ModelRequest, now: float) -> Sequence[Heard]:
        """Begins to send to the member `via`, or to fetch from it. Returns what the worker hears of that."""
        self.give_up()
        assert message.via is not None  # else it goes to the hub
        if (place := self._places.get(message.via)) is None:
            return [_failed(message)]
        if place in self._link_of:
            self._begin(self._link_of[place], message)
        else:
            self._dialers.setdefault(place, Dialer(self._links, place))
            self._waiting = _Waiting(place, message, now + max(_LEAST_S, _TIMES * self.hub_s))
        return self.turn(now)

    def turn(self, now: float) -> Sequence[Heard]:
        """Looks what has become of calls. Returns what the worker hears of that."""
        for place, dialer in list(self._dialers.items()):
            why = self._dial(place, dialer, now)
            waiting = self._waiting
            if waiting is None or waiting.place != place:
                continue
            if place in self._link_of:
                self._begin(self._link_of[place], waiting.message)
            elif why or now >= waiting.until:
                self._waiting = None
                why = why or f"{place.place} has not answered so far"
                log.warning(
                    "member %s cannot be reached, and the hub names another way: %s", waiting.message.via, why
                )
                return [_failed(waiting.message)]
        return []

    def wait_s(self, now: float) -> float:
        """How long there is nothing to be done."""
        return min((dialer.wait_s(now) for dialer in self._dialers.values()), default=_NEVER_S)

    def close(self) -> None:
        """After the links were closed."""
        for dialer in self._dialers.values():
            dialer.close()

    def give_up(self) -> None:
        """What is under way is not wanted any more."""
        if self._under_way is not None and isinstance(self._under_way[1], Payload):
            self._end(self._under_way[0], "it goes another way")
        self._under_way = self._waiting = None

    def done(self) -> None:
        """What was under way has arrived."""
        self._under_way = self._waiting = None

    def reset(self) -> None:
        """The link to the hub has broken: it names ways anew."""
        for link in list(self._link_of.values()):
            self._end(link, "the link to the hub has broken")
        self._under_way = self._waiting = None

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
        if not (isinstance(wanted, ModelRequest) and wanted.version == message.version):
            return []
        self._under_way = None
        self._links.allow(link, HEAD.size + SMALL_BYTES)
        return [(message, body)]

    def _begin(self, link: int, message: Payload | ModelRequest) -> None:
        self._under_way, self._waiting = (link, message), None
        if isinstance(message, Payload):
            self._links.send(link, framed(Offer(message.number, message.value.numel())))
        else:
            self._links.allow(link, HEAD.size + max(SMALL_BYTES, self.most_bytes))
            self._links.send(link, framed(message))

    def _dial(self, place: HubAddress, dialer: Dialer, now: float) -> str:
        """Calls once. Returns why there is no link; empty: there is one, or the call is under way."""
        try:
            link = dialer.poll(now)
        except UsageError as error:
            link, dialer.failed = None, str(error)
        if link is not None:
            self._link_of[place] = link
            self.made(link)
        if link is not None or dialer.failed:
            del self._dialers[place]
        return dialer.failed

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


def _failed(message: Payload | ModelRequest) -> Heard:
    lost: FromWay = (
        Blocked(message.number) if isinstance(message, Payload) else Handed(message.version, False)
    )
    return lost, _NOTHING


def _payload(message: Payload) -> tuple[bytes, bytes]:
    body = message.value.numpy().tobytes()
    return framed(message, len(body)), body
