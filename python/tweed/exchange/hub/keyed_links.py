"""A hub's links to members that come, go and return: `MemberLinks` without a group.

A member is its key; the hub numbers keys in the order in which they first came, and keeps the numbers in its
checkpoint. A link begins with a question of the member (`greetings`); until it is answered, and at any time
but for what was granted, and for sums of a group at it, it may bring a few KB at a time.

Members that add up what others send, and hand on models, say where they listen when they come. The others
are told that place, and the key with it, as part of what names such a member; and it is told their keys.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from tweed import _core
from tweed.errors import DataError
from tweed.exchange.hub import bodies, greetings
from tweed.exchange.hub.bodies import Part
from tweed.exchange.hub.framing import HEAD, SMALL_BYTES, framed, split
from tweed.exchange.hub.head import Kind, from_worker
from tweed.exchange.hub.links import Linked, News
from tweed.exchange.hub.messages import (
    End,
    FromHub,
    FromWorker,
    Gather,
    Grant,
    Leave,
    Lend,
    Offer,
    Outcome,
    Payload,
    Task,
)

log = logging.getLogger("tweed")
#: A link on which nothing was asked for so long is ended, and so long the end of training waits for members.
_PATIENCE_S = 30.0


class KeyedLinks:
    """See above.

    Args:
      links: that listen.
      terms: all that hub and members must agree on, a line each.
      job: what members that ask are to do; None: it is not said.
      fewest: no task is handed out before so many members are there.

    Attributes:
      numbers: of the members that ever came, by key.
    """

    def __init__(
        self, links: _core.HubLinks, terms: Sequence[str], job: Mapping[str, Any] | None, fewest: int
    ) -> None:
        self.most_bytes = self.numel = 0
        self.numbers: dict[str, int] = {}
        self._links, self._terms, self._job, self._fewest = links, terms, job, fewest
        self._asking: dict[int, tuple[str, float]] = {}  # links that are not in: the key, and since when
        self._member_of: dict[int, int] = {}  # by link
        self._link_of: dict[int, int] = {}  # by member
        self._away: set[int] = set()  # members whose link has ended, and who may want to go on
        self._done: set[int] = set()  # those who do not
        self._offered: dict[int, int] = {}  # bytes, by member
        self._granted: dict[int, int] = {}
        self._keys: dict[int, str] = {}  # by member
        self._sums: dict[int, int] = {}  # bytes that a sum of theirs may have, by member
        self._model_bytes: dict[int, int] = {}  # of the last model that was told, by member
        self._places: dict[int, str] = {}  # where those listen that add up for others, by member
        self._early: list[News] | None = []  # until there are enough members
        self._digest = greetings.digest(terms)
        self._model: tuple[Tensor, bytes] | None = None  # that was told last

    @property
    def over(self) -> bool:
        """Never: members may always come."""
        return False

    @property
    def members(self) -> list[int]:
        """Who is there, by number."""
        return sorted(self._link_of)

    def worker(self, member: int) -> int:
        """See `MemberLinks`."""
        return member

    def next(self, until: float) -> Sequence[News]:
        """See `MemberLinks`. Comes back within a second in any case."""
        came: list[News] = []
        for link, what in self._links.next(min(1.0, max(0.0, until - time.monotonic()))):
            if isinstance(what, bytes):
                self._asking[link] = what.hex(), time.monotonic()
            elif isinstance(what, str):
                came += self._ended(link, what)
            elif what is not None:
                came += self._heard(link, what)
        self._end_silent()
        return self._when_enough(came)

    def tell(self, member: int, message: FromHub, model: Tensor | None) -> None:
        """See `MemberLinks`; who is not there hears nothing."""
        if isinstance(message, Grant):
            self._granted[member] = self._offered.get(member, 0) if message.via is None else 0
        elif isinstance(message, Outcome):
            self._granted.pop(member, None)
        elif isinstance(message, Gather):
            room = bodies.sum_room(self.numel, len(message.tasks))
            self._sums[member] = max(room, self._sums.get(member, 0))
        elif isinstance(message, End):
            self._done.add(member)
        if (link := self._link_of.get(member)) is None:
            return
        self._allow(member, link)
        body = self._named(member, message) if model is None else self._as_bytes(model)
        if isinstance(message, Task):
            self._model_bytes[member] = 0 if model is None else model.numel()
        self._links.send(link, framed(message, 0 if body is None else len(body)), body)

    def _named(self, member: int, message: FromHub) -> bytes | None:
        """What is to be known of the members that a message names."""
        if isinstance(message, Gather):
            return bodies.pack_parts([self._part(*task) for task in message.tasks])
        if isinstance(message, Lend):
            return self._keys[message.member].encode()
        if not isinstance(message, Task | Grant) or message.via is None:
            return None
        if isinstance(message, Task) and message.via in self._places:
            self.tell(message.via, Lend(message.version, member), None)
        return self._places.get(message.via, "").encode()

    def _part(self, member: int, number: int) -> Part:
        return Part(member, number, self.worker(member), self._offered.get(member, 0), self._keys[member])

    def forget(self, barred: Callable[[str], bool]) -> None:
        """Whoever has a key that is barred does not come back: nothing waits for it any more."""
        self._done |= {member for key, member in self.numbers.items() if barred(key)}
        self._away -= self._done

    def flush(self) -> None:
        """Nothing: nobody who comes when he likes is waited for."""

    def end(self, end: End, model: Tensor) -> None:
        """See `MemberLinks`. Waits until all have hung up, and who was cut off has come back to hear it: half
        a minute at most."""
        until = time.monotonic() + _PATIENCE_S
        for member in self.members:
            self.tell(member, end, model)
        while (self._link_of or self._away) and time.monotonic() < until:
            for member, news in self.next(until):
                if news is Linked.JOINED:
                    self.tell(member, end, model)

    def close(self) -> None:
        """See `MemberLinks`."""
        self._links.close()

    def state(self) -> dict[str, Any]:
        """See `MemberLinks`."""
        return {"numbers": dict(self.numbers)}

    def load(self, state: Mapping[str, Any]) -> None:
        """See `MemberLinks`; before anybody has come."""
        self.numbers = dict(state["numbers"])
        self._away = set(self.numbers.values())

    def _heard(self, link: int, data: bytearray) -> list[News]:
        """What a link has brought; one that brings what cannot be is ended."""
        try:
            if link in self._asking:
                return self._answer(link, greetings.read(data))
            if link in self._member_of:
                member = self._member_of[link]
                return [(member, self._message(member, data))]
        except DataError as error:
            log.warning("a member is cut off: %s", error)
            self._done |= {self._member_of[link]} if link in self._member_of else set()
            self._links.cut(link, str(error))
        return []

    def _message(self, member: int, data: bytearray) -> FromWorker:
        head, body = split(data)
        if head[0] == Kind.SUM:
            return bodies.read_sum(head[1], body, self.numel)
        message = from_worker(head, body)
        if isinstance(message, Offer):
            self._offered[member] = min(message.numbytes, self.most_bytes)
            return replace(message, model_bytes=self._model_bytes.get(member, 0))
        if isinstance(message, Payload | Leave):
            self._granted.pop(member, None)
            self._allow(member, self._link_of[member])
        if isinstance(message, Leave):
            self._done.add(member)
        return message

    def _answer(self, link: int, asked: Mapping[str, Any]) -> list[News]:
        joined: list[News] = []
        if asked.get("ask") == "job":
            answer: dict[str, Any] = {"job": self._job}
        elif asked.get("terms") != self._digest:
            answer = {"terms": list(self._terms)}
        else:
            key, _ = self._asking.pop(link)
            member = self.numbers.setdefault(key, len(self.numbers))
            self._member_of[link], self._link_of[member] = member, link
            self._keys[member] = key
            self._away.discard(member)
            self._done.discard(member)
            answer = {"worker": member, "workers": self._fewest}
            self._allow(member, link)
            log.info("member %d (%s) is there", member, key[:8])
            joined = [(member, Linked.JOINED)]
            if isinstance(place := asked.get("aggregator"), str) and len(place) < SMALL_BYTES:
                self._places[member] = f"{key}@{place}"
                joined.append((member, Linked.ABLE))
        self._links.send(link, greetings.packed(answer))
        return joined

    def _ended(self, link: int, why: str) -> list[News]:
        self._asking.pop(link, None)
        member = self._member_of.pop(link, None)
        if member is None or self._link_of.get(member) != link:
            return []
        log.info("member %d is gone: %s", member, why)
        del self._link_of[member]
        self._places.pop(member, None)
        self._sums.pop(member, None)
        if member in self._done:
            return [(member, Leave())]
        self._away.add(member)
        return [(member, Linked.LEFT)]

    def _allow(self, member: int, link: int) -> None:
        most = max(SMALL_BYTES, self._granted.get(member, 0), self._sums.get(member, 0))
        self._links.allow(link, HEAD.size + most)

    def _end_silent(self) -> None:
        """Links on which nobody has asked to be in; new ones are the last."""
        while self._asking:
            link, (_, since) = next(iter(self._asking.items()))
            if time.monotonic() - since < _PATIENCE_S:
                return
            del self._asking[link]
            self._links.cut(link, "it has not asked to be in")

    def _when_enough(self, came: list[News]) -> Sequence[News]:
        if self._early is None:
            return came
        self._early += came
        if len(self._link_of) < self._fewest:
            return []
        came, self._early = self._early, None
        return came

    def _as_bytes(self, model: Tensor) -> bytes:
        """Shared by all who are told the same model."""
        if self._model is None or self._model[0] is not model:
            self._model = model, model.numpy().tobytes()
        return self._model[1]
