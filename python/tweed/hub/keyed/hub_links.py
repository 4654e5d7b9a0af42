"""A hub's links to members that come, go and return: `MemberLinks` without a group.

A member is its key; the hub numbers keys in the order in which they first came, and keeps the numbers in its
checkpoint. A link begins with a question of the member (`hello`); until it is answered, and at any time
but for what was granted, and for sums of a group at it, it may bring a few KB at a time (`allowances`). Who
was granted something and does not send it is hung up on (`silence`).

Members that add up what others send, and hand on models, say where they listen when they come. The others
are told that place, and the key with it, by what names such a member; and it is told their keys.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from tweed import _core
from tweed.errors import DataError
from tweed.hub.keyed.allowances import Allowances
from tweed.hub.keyed.eager import EagerPayloads
from tweed.hub.links.base import Linked, News
from tweed.hub.standby.replication import Replication
from tweed.hub.wire import bodies, control
from tweed.hub.wire.framing import framed, split
from tweed.hub.wire.head import HEAD, Kind, from_worker
from tweed.hub.wire.messages import (
    End,
    FromHub,
    FromWorker,
    Grant,
    Leave,
    ModelGrant,
    Offer,
    Outcome,
    Payload,
    Task,
)
from tweed.links import hello
from tweed.links.silence import Silence

log = logging.getLogger("tweed")
#: A link on which nothing was asked for so long is ended, and so long the end of training waits for members.
_PATIENCE_S = 30.0
#: No more keys are known: about a kilobyte is kept of each that ever came.
_MOST_KEYS = 1 << 16
#: Numbers that a hub which is gone may have given and its standby has not heard of.
_FEW = 64


class KeyedLinks:
    """See above.

    Args:
      links: that listen.
      terms: all that hub and members must agree on, a line each.
      job: what members that ask are to do; None: it is not said.
      fewest: no task is handed out before so many members are there.
      replication: what a standby of this hub gets.

    Attributes:
      fewest: see above.
      numbers: of the members that ever came, by key.
      eager: payloads that come with their offers; at first none may.
      barred: says of a key whether its process may be no member, though it has a link.
      announce_takeover: after this process has taken over: called now and then.
    """

    def __init__(
        self,
        links: _core.HubLinks,
        terms: Sequence[str],
        job: Mapping[str, Any] | None,
        fewest: int,
        replication: Replication,
    ) -> None:
        self._allowed, self._silence = Allowances(self.worker), Silence()
        self.eager = EagerPayloads()
        self.numbers: dict[str, int] = {}
        self._links, self._terms, self._job, self.fewest = links, terms, job, fewest
        self.barred: Callable[[str], bool] = lambda key: False
        self.announce_takeover: Callable[[], None] = lambda: None
        self._replication = replication
        self._ignored: set[int] = set()
        self._expected: dict[int, int] = {}  # links over which a member will ask to be in
        self._asking: dict[int, tuple[str, float]] = {}  # links that are not in: the key, and since when
        self._member_of: dict[int, int] = {}  # by link
        self._link_of: dict[int, int] = {}  # by member
        self._away: set[int] = set()  # members whose link has ended, and who may want to go on
        self._done: set[int] = set()  # those who do not
        # By member and kind of message, until there are enough members.
        self._early: dict[int, dict[type | Linked, News]] | None = {}
        self._given_up: list[News] = []  # members that were barred while they were away
        self._digest = hello.digest(terms)
        self._model: tuple[Tensor, bytes] | None = None  # that was sent last

    @property
    def most_bytes(self) -> int:
        return self._allowed.most_bytes

    @most_bytes.setter
    def most_bytes(self, numbytes: int) -> None:
        self._allowed.most_bytes = numbytes

    @property
    def numel(self) -> int:
        """The number of values of a sum."""
        return self._allowed.numel

    @numel.setter
    def numel(self, numel: int) -> None:
        self._allowed.numel = numel

    @property
    def over(self) -> bool:
        """Never: members may always come."""
        return False

    @property
    def members(self) -> list[int]:
        """Who is there, by number."""
        return sorted(self._link_of)

    @property
    def keys(self) -> Mapping[int, str]:
        return {number: key for key, number in list(self.numbers.items())}

    @property
    def refused(self) -> Mapping[str, int]:
        return self._links.refused()

    def worker(self, member: int) -> int:
        return member

    def next(self, until: float) -> Sequence[News]:
        """Comes back within a second in any case, but for the time in which a standby may
        take over: then nothing is handed on. Raises Superseded if it has."""
        self._replication.rest()
        came = list(self._next(until))
        while not self._replication.guard.may_commit:
            came += self._next(math.inf)
            self._replication.rest()
        return came

    def _next(self, until: float) -> Sequence[News]:
        came, self._given_up, self.eager.arrived = [*self._given_up, *self.eager.arrived], [], []
        self.announce_takeover()
        until = -math.inf if came else min(until, self._silence.deadline())
        for link, what in self._links.next(min(1.0, max(0.0, until - time.monotonic()))):
            if link in self._ignored:
                continue
            if isinstance(what, bytes):
                self._asking[link] = what.hex(), time.monotonic()
            elif isinstance(what, str):
                came += self._ended(link, what)
            else:
                came += self._heard(link, what)
        self._end_silent()
        self._hang_up()
        return self._when_enough(came)

    def tell(self, member: int, message: FromHub, model: Tensor | None) -> None:
        """Who is not there hears nothing."""
        if isinstance(message, End):
            self._done.add(member)
        if isinstance(message, Grant) and self.eager.granted(member, message):
            self._silence.granted(member, now := time.monotonic())
            self._silence.arrived(member, now)
            return
        if isinstance(message, Outcome):
            self.eager.over(member)
        self._allowed.tell(member, message, 0 if model is None else model.numel())
        if (link := self._link_of.get(member)) is None:
            return
        if isinstance(message, Grant) and message.via is None and not message.copy_first:
            self._silence.granted(member, time.monotonic())
        elif isinstance(message, Grant | Outcome):
            self._silence.over(member)
        if isinstance(message, Task) and message.via is not None:
            self.tell(message.via, ModelGrant(message.version, member), None)
        elif isinstance(message, Task) and self._replication.link is None:
            message = replace(message, eager_bytes=self.eager.allow(member))
        self._allow(member, link)
        body = self._allowed.body(message) if model is None else self._as_bytes(model)
        # A task follows an outcome that says so, and they leave in one piece.
        more = isinstance(message, Outcome) and message.goes_on
        self._links.send(link, framed(message, 0 if body is None else len(body)), body, more)

    def announce(self, member: int | None, head: bytes, body: bytes | None = None) -> None:
        for link in self._link_of.values() if member is None else [self._link_of[member]]:
            self._links.send(link, head, body)

    def succeed(self, coming: Mapping[int, str], calling: Mapping[int, str]) -> None:
        """Goes on with the members of a hub that is gone.

        Args:
          coming: keys of members that will ask to be in, by link.
          calling: likewise, of others that have called.
        """
        self._early, now = None, time.monotonic()
        self._asking = {link: (key, now) for link, key in {**coming, **calling}.items()}
        self._expected = {link: self.numbers[key] for link, key in coming.items()}

    def ignore(self, link: int) -> None:
        """Nothing that happens on this link concerns members."""
        self._asking.pop(link, None)
        self._ignored.add(link)

    def forget(self, barred: Callable[[str], bool]) -> None:
        """Whoever has a key that is barred does not come back: nothing waits for it any more."""
        self._done |= {member for key, member in self.numbers.items() if barred(key)}
        self._given_up += [(member, Leave()) for member in sorted(self._away & self._done)]
        self._away -= self._done

    def flush(self) -> None:
        """Does nothing: members that come when they like are not waited for."""

    def end(self, end: End, model: Tensor) -> None:
        """Waits until all have hung up, and who was cut off has come back to hear it: half
        a minute at most."""
        until = time.monotonic() + _PATIENCE_S
        for member in self.members:
            self.tell(member, end, model)
        standby = self._replication
        standby.finish(end.version)
        while (self._link_of or self._away or standby.link is not None) and time.monotonic() < until:
            for member, news in self._next(until):
                if news is Linked.JOINED:
                    self.tell(member, end, model)
            standby.rest()
        standby.forget()

    def close(self) -> None:
        self._links.close()

    def state(self) -> dict[str, Any]:
        return {"numbers": dict(self.numbers), "generation": self._replication.generation}

    def load(self, state: Mapping[str, Any]) -> None:
        """Before anybody has come."""
        self.numbers, self._replication.generation = dict(state["numbers"]), state["generation"]
        self._away = set(self.numbers.values())

    def _heard(self, link: int, data: bytearray) -> list[News]:
        """What a link has brought; one that brings what cannot be is ended."""
        try:
            if link in self._expected and control.is_control(data):
                return []  # it was for the standby that this process has been
            if link in self._asking:
                return self._answer(link, hello.read(data))
            if link == self._replication.link:
                self._replication.heard(data)
            elif link in self._member_of:
                member = self._member_of[link]
                if control.is_control(data):
                    return self._of_standby(member, control.read(data))
                return [(member, self._message(member, data))]
        except DataError as error:
            # Of those that are not in there may be any number.
            level = logging.WARNING if link in self._member_of else logging.INFO
            log.log(level, "a member is cut off: %s", error)
            self._done |= {self._member_of[link]} if link in self._member_of else set()
            self._links.cut(link, str(error))
        return []

    def _message(self, member: int, data: bytearray) -> FromWorker:
        head, body = split(data)
        is_sum = head[0] == Kind.SUM
        came = bodies.read_sum(head[1], body, self.numel) if is_sum else from_worker(head, body)
        message = self._allowed.heard(member, came)
        if isinstance(message, Offer):
            self.eager.offered(member, message, body)
        if body.numel():
            self._allow(member, self._link_of[member])
        if isinstance(message, Leave):
            self._done.add(member)
        elif isinstance(message, Payload):
            self._silence.arrived(member, time.monotonic())
        return message

    def _of_standby(self, member: int, message: control.Control) -> list[News]:
        if message.kind is not control.Kind.RENOUNCED:
            raise DataError(f"a member says {message.kind.name} to a hub")
        self._replication.renounced(member, message.number)
        return []

    def _answer(self, link: int, asked: Mapping[str, Any]) -> list[News]:
        key, _ = self._asking[link]
        joins = False
        if asked.get("ask") == "job":
            answer: dict[str, Any] = {"job": self._job}
        elif "copies" in asked or asked.get("ask") == "restarted":  # as of a standby, which this has been
            answer = {"serves": self._replication.generation or None}
        elif asked.get("terms") != self._digest:
            answer = {"terms": list(self._terms)}
        elif asked.get("ask") == "replica":
            if asked.get("fewest") == self.fewest:
                answer = self._replication.asked(link, key, asked)
            else:
                answer = {"refused": f"it was started with fewest={self.fewest}"}
            if self._replication.link == link:
                del self._asking[link]
        elif self.barred(key):
            answer = {"refused": "its key is not on the list of members"}
        elif key not in self.numbers and len(self.numbers) >= _MOST_KEYS:
            answer = {
                "refused": f"{_MOST_KEYS} keys have come to this hub, and it keeps no more. Come with a key "
                "that has come before (--key-file), or let the hub begin anew"
            }
        else:
            joins, answer = True, {"worker": self._number(key, asked.get("worker")), "workers": self.fewest}
        self._links.send(link, hello.packed(answer))
        return self._joined(link, key, asked.get("aggregator")) if joins else []

    def _number(self, key: str, claimed: object) -> int:
        """A member's: a new one may keep that under which a hub knew it that is gone."""
        if key not in self.numbers:
            next_one = max(self.numbers.values(), default=-1) + 1
            known = isinstance(claimed, int) and 0 <= claimed <= next_one + _FEW
            free = known and claimed not in self.numbers.values()
            self.numbers[key] = claimed if isinstance(claimed, int) and free else next_one
        return self.numbers[key]

    def _joined(self, link: int, key: str, place: object) -> list[News]:
        member = self.numbers[key]
        del self._asking[link]
        self._expected.pop(link, None)
        self._member_of[link], self._link_of[member] = member, link
        self._away.discard(member)
        self._done.discard(member)
        able = self._allowed.joined(member, key, place)
        self._allow(member, link)
        self._replication.joined(member)
        log.info("member %d (%s) is there", member, key[:8])
        return [(member, Linked.JOINED), *([(member, Linked.ABLE)] if able else [])]

    def _ended(self, link: int, why: str) -> list[News]:
        self._asking.pop(link, None)
        if link == self._replication.link:
            self._replication.ended(why)
        if link in self._expected:
            return [(self._expected.pop(link), Linked.LEFT)]
        member = self._member_of.pop(link, None)
        if member is None or self._link_of.get(member) != link:
            return []
        log.info("member %d is gone: %s", member, why)
        del self._link_of[member]
        self._replication.left(member)
        self._allowed.left(member)
        self.eager.over(member)
        self._silence.over(member)
        if member in self._done:
            return [(member, Leave())]
        self._away.add(member)
        return [(member, Linked.LEFT)]

    def _allow(self, member: int, link: int) -> None:
        self._links.allow(link, HEAD.size + max(self._allowed.room(member), self.eager.room(member)))

    def _end_silent(self) -> None:
        """Links on which nobody has asked to be in; new ones are the last."""
        while self._asking:
            link, (_, since) = next(iter(self._asking.items()))
            if time.monotonic() - since < _PATIENCE_S:
                return
            del self._asking[link]
            self._links.cut(link, "it has not asked to be in")

    def _hang_up(self) -> None:
        """On whoever was granted something and sends nothing of it."""
        after_s = self._silence.while_s
        for member in self._silence.look(time.monotonic(), lambda one: self._links.come(self._link_of[one])):
            why = f"it was granted what it had offered, and no byte of that came for {after_s:.1f} s"
            log.warning("the hub hangs up on member %d, others may send: %s", member, why)
            self._links.cut(self._link_of[member], why)

    def _when_enough(self, came: list[News]) -> Sequence[News]:
        """Until there are enough members, of each the last message of a kind is kept."""
        if self._early is None:
            return came
        for member, news in came:
            if news is Linked.LEFT or isinstance(news, Leave):
                self._early.pop(member, None)  # it has begun nothing
            else:
                kind = news if isinstance(news, Linked) else type(news)
                self._early.setdefault(member, {})[kind] = member, news
        if len(self._link_of) < self.fewest:
            return []
        early, self._early = self._early, None
        return [news for of_one in early.values() for news in of_one.values()]

    def _as_bytes(self, model: Tensor) -> bytes:
        """Shared by all members that receive the same model."""
        if self._model is None or self._model[0] is not model:
            self._model = model, model.numpy().tobytes()
        return self._model[1]
