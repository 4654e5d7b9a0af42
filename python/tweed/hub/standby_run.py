"""A standby, live: it follows a hub, and is the hub when that is gone.

    STATE, LOG          from the hub        the machine of `hub/standby` applies what it can
    COPY, SUM           from members        kept until its entry comes; HAVE to the member, HELD to the hub
    LOST                from members        `Successor` decides whether to take over

One loop drives the links of both kinds; calls to the hub go out on a thread. What is committed is applied by
the same optimizer, in the same order, by what members sent themselves, and so gives the same bits.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from tweed import _core
from tweed.errors import DataError, PeerLost, ShapeMismatch, UsageError
from tweed.hub.keyed.hub_links import KeyedLinks
from tweed.hub.snapshot import Site
from tweed.hub.standby.link import WINDOW
from tweed.hub.standby.replication import Replication
from tweed.hub.standby.succession import Successor, SuccessorState
from tweed.hub.wire import bodies, control
from tweed.hub.wire.control import Control, Kind
from tweed.hub.wire.head import HEAD
from tweed.links import hello
from tweed.links.address import HubAddress
from tweed.links.client import ask
from tweed.links.dialer import Dialer

log = logging.getLogger("tweed")
#: An entry of the log that waits so long for a copy makes the standby ask for the hub's state.
_STALL_S = 5.0
#: The same, if the link has ended to whoever has it.
_GONE_S = 0.5
#: A caller that is no member, as far as this standby knows, waits so long for the hub to say that it is one.
_PATIENCE_S = 30.0


class Following:
    """See above.

    Args:
      sockets: of this process, which listen.
      hub: its address.
      site: what is trained here.
      members, replication: of this process, for when it is the hub.

    Raises: UsageError, ShapeMismatch or PeerLost if the hub does not take it as its standby.
    """

    def __init__(
        self,
        sockets: _core.HubLinks,
        hub: HubAddress,
        site: Site,
        members: KeyedLinks,
        replication: Replication,
    ) -> None:
        self._sockets, self._hub, self._site = sockets, hub, site
        self._links, self._replication = members, replication
        self._standby, self._successor = site.server.follow(), Successor()
        self._dialer = Dialer(sockets, hub)
        self._asking: dict[int, tuple[str, Mapping[str, Any] | None, float]] = {}  # key, question, since when
        self._member_of: dict[int, int] = {}  # by link
        self._link_of: dict[int, int] = {}  # by member
        self._gone: set[int] = set()  # members whose link has ended
        self._held: defaultdict[int, list[int]] = defaultdict(list)  # numbers of copies, by member
        self._sums: defaultdict[int, list[int]] = defaultdict(list)  # groups whose sums are here, by member
        self._finished = math.inf
        self._stalled: tuple[int | None, float] = (None, 0.0)
        self._hub_link: int | None = sockets.call(hub.place, hub.key)
        self._introduce()

    def follow(self, step: Callable[[], None], after: Callable[[int], None]) -> bool:
        """Applies what the hub commits, until that has ended training, or this process is the hub.

        Args:
          step: lets the optimizer step by the gradients that are there.
          after: called after each commit, with the version of the model.

        Returns: whether it is.
        """
        while self._site.server.standby is not None:
            wait_s = 0.5 if self._hub_link is not None else self._call()
            for link, what in self._sockets.next(wait_s):
                self._event(link, what)
            self._end_silent()
            self._apply(step, after)
            self._ask_if_stalled(time.monotonic())
            if self._successor.state is SuccessorState.SERVING:
                self._take_over()
                return True
            if self._standby.version >= self._finished or (
                self._hub_link is None and self._finished < math.inf
            ):
                self._end()
                return False
        return True

    def close(self) -> None:
        """After the links were closed."""
        self._dialer.close()

    # Links

    def _question(self, **more: Any) -> dict[str, Any]:
        """What the hub hears first."""
        whole = self._successor.state is not SuccessorState.EMPTY
        said = {
            "ask": "replica",
            "terms": hello.digest(self._site.terms),
            "fewest": self._links.fewest,
            "listen": self._site.place,
            "appointment": self._successor.appointment if whole else 0,
            "version": self._standby.version,
        }
        return said | more

    def _introduce(self) -> None:
        """Over a link to the hub that is new. Raises as the class if that does not take this standby."""
        assert self._hub_link is not None  # it is new
        answer, more = ask(self._sockets, self._hub_link, self._question(), lambda event: self._event(*event))
        if "terms" in answer:
            why = hello.difference(self._site.terms, answer["terms"])
            raise ShapeMismatch(f"the hub at {self._hub.place} trains something else: {why}")
        if "replica" not in answer:
            raise UsageError(
                f"the hub at {self._hub.place} does not take this process as its standby: "
                f"{answer.get('refused')} (a hub lists it by replicas=[{self._sockets.key!r}], or "
                f"--replica-key {self._sockets.key})"
            )
        self._sockets.allow(self._hub_link, HEAD.size + self._site.most_bytes)
        for link, what in more:
            self._event(link, what)

    def _call(self) -> float:
        """Calls the hub again. Returns for how many seconds there is nothing to be done."""
        now = time.monotonic()
        self._hub_link = self._poll()
        if self._hub_link is None:
            return min(0.5, self._dialer.wait_s(now))
        self._asking.pop(self._hub_link, None)
        for member in self._successor.hub_back():
            self._tell(member, Kind.RELEASED)
        try:
            self._introduce()
        except PeerLost as error:
            self._ended(self._hub_link, str(error))
        return 0.0

    def _poll(self) -> int | None:
        try:
            return self._dialer.poll(time.monotonic())
        except UsageError as error:  # another process may have the address for a while
            log.warning("%s", error)
            return None

    def _event(self, link: int, what: bytes | bytearray | str) -> None:
        if isinstance(what, bytes):
            if link != self._hub_link:
                self._asking[link] = what.hex(), None, time.monotonic()
        elif isinstance(what, str):
            self._ended(link, what)
        elif link == self._hub_link:
            self._from_hub(control.read(what))
        else:
            try:
                self._from_caller(link, what)
            except DataError as error:
                log.warning("a member is cut off: %s", error)
                self._sockets.cut(link, str(error))

    def _ended(self, link: int, why: str) -> None:
        self._asking.pop(link, None)
        if link == self._hub_link:
            log.warning("the link to the hub at %s has ended: %s", self._hub.place, why)
            self._hub_link = None
            self._successor.hub_lost()
        member = self._member_of.pop(link, None)
        if member is not None and self._link_of.get(member) == link:
            del self._link_of[member]
            self._gone.add(member)
            self._successor.unlinked(member)

    def _end_silent(self) -> None:
        """Callers that say nothing, or of which the hub says nothing."""
        while self._asking:
            link, (_, _, since) = next(iter(self._asking.items()))
            if time.monotonic() - since < _PATIENCE_S:
                return
            del self._asking[link]
            self._sockets.cut(link, "it is no member of the hub")

    # The hub

    def _from_hub(self, message: Control) -> None:
        if message.kind is Kind.ROSTER:
            self._roster(message.number, json.loads(bytes(message.body)))
        elif message.kind is Kind.STATE and message.number == self._successor.appointment:
            self._load(bytes(message.body))
        elif message.kind is Kind.LOG:
            for entry in control.entries_of(message.body):
                self._standby.handle(entry)
        elif message.kind is Kind.FINISHED:
            self._finished = message.number

    def _roster(self, appointment: int, said: dict[str, Any]) -> None:
        """Who is who, and who is there."""
        self._replication.generation = said["generation"]
        self._links.numbers |= said["numbers"]
        for key in said["expelled"]:
            self._sockets.expel(key)
        if said["whole"]:
            self._successor.appointed(appointment, said["joined"])
        elif "joined" in said:
            self._successor.changed(said["joined"], said["left"])
        if "joined" in said:
            self._to_hub(Kind.AGREED)
        for link, (key, question, _) in list(self._asking.items()):
            if question is not None and key in self._links.numbers:
                self._answer(link, key, question)

    def _load(self, data: bytes) -> None:
        """Goes on from the hub's state."""
        if (last := self._site.load(data)) is None:
            return
        self._successor.filled()
        for member, number in last.items():
            self._tell(member, Kind.KEPT, number)
        log.info("this standby has version %d of the hub at %s", self._standby.version, self._hub.place)

    def _to_hub(self, kind: Kind, number: int = 0, *values: float) -> None:
        if self._hub_link is not None:
            self._sockets.send(self._hub_link, control.head(kind, number, *values))

    # Members

    def _from_caller(self, link: int, data: bytearray) -> None:
        if link in self._asking:
            key, _, since = self._asking[link]
            question = hello.read(data)
            self._asking[link] = key, question, since
            self._answer(link, key, question)
        elif link in self._member_of:
            self._from_member(link, self._member_of[link], control.read(data))

    def _answer(self, link: int, key: str, question: Mapping[str, Any]) -> None:
        """To the first that a caller says; who may be a member that the hub has not named yet waits."""
        if question.get("ask") == "restarted" and key == self._hub.key:
            serves = self._successor.hub_restarted()
            answer: dict[str, Any] = {"serves": self._replication.generation + 1 if serves else None}
            self._sockets.send(link, hello.packed(answer))
        elif "copies" not in question:
            answer = {"refused": f"this is the standby of the hub at {self._hub}: call that"}
            self._sockets.send(link, hello.packed(answer))
        elif key in self._links.numbers:
            self._let_in(link, self._links.numbers[key])

    def _let_in(self, link: int, member: int) -> None:
        del self._asking[link]
        self._member_of[link], self._link_of[member] = member, link
        self._gone.discard(member)
        room = max(self._links.most_bytes, bodies.most_sum_bytes(self._links.numel))
        self._sockets.allow(link, HEAD.size + room)
        self._sockets.send(link, hello.packed({"member": member}))
        self._tell(member, Kind.KEPT, self._standby.last.get(member, 0))

    def _from_member(self, link: int, member: int, message: Control) -> None:
        if message.kind is Kind.LOST:
            if not self._successor.promise(member, message.number):
                self._tell(member, Kind.RELEASED)
        elif message.kind is Kind.COPY:
            self._copied(member, message)
        elif message.kind is Kind.SUM:
            self._added_up(member, message)
        else:
            raise DataError(f"a member says {message.kind.name} to a standby")

    def _copied(self, member: int, message: Control) -> None:
        """Keeps a copy; a member that sends more than it may is cut off."""
        held = [number for number in self._held[member] if self._standby.holds((member, number))]
        if len(held) >= 2 * WINDOW:
            raise DataError(f"{len(held)} copies of its contributions are here, and it sends one more")
        self._standby.handle(control.copy_of(member, message))
        self._held[member] = [*held, message.number]
        self._tell(member, Kind.HAVE, message.number)
        self._to_hub(Kind.HELD, message.number, member)

    def _added_up(self, member: int, message: Control) -> None:
        """Keeps a sum that `member` has formed. Where there is no room, it comes with the hub's state."""
        held = [group for group in self._sums[member] if self._standby.holds((group, member, 0))]
        if len(held) >= 2 * WINDOW:
            return
        copy = control.sum_of(member, message, self._links.numel)
        self._standby.handle(copy)
        self._sums[member] = [*held, message.number]
        self._tell(member, Kind.HAVE_SUM, message.number)
        for one, number in copy.tasks:
            self._to_hub(Kind.HELD, number, one)

    def _tell(self, member: int, kind: Kind, number: int = 0) -> None:
        if (link := self._link_of.get(member)) is not None:
            self._sockets.send(link, control.head(kind, number))

    # What follows

    def _apply(self, step: Callable[[], None], after: Callable[[int], None]) -> None:
        """All entries whose copies are there."""
        while (
            self._successor.state is not SuccessorState.EMPTY and (found := self._standby.poll()) is not None
        ):
            made, kept = found
            self._site.server.commit(made, step)
            for one in kept:
                self._tell(one.member, Kind.KEPT, one.number)
            after(made.version)

    def _ask_if_stalled(self, now: float) -> None:
        waiting, since = self._stalled
        if self._standby.waits_for() != waiting:
            self._stalled = self._standby.waits_for(), now
        elif waiting is not None and now - since > (_STALL_S if self._may_come() else _GONE_S):
            log.warning("version %d waits for a copy that does not come; the hub sends its state", waiting)
            self._to_hub(Kind.LACKS, self._standby.version)
            self._stalled = waiting, now

    def _may_come(self) -> bool:
        """Whether none of those whose copies are waited for has left."""
        return not self._standby.waits_for_whom() & self._gone

    def _take_over(self) -> None:
        log.warning("the hub at %s is gone; this process is the hub now", self._hub.place)
        self._replication.generation += 1
        generation = self._replication.generation
        for member in self._link_of:
            self._tell(member, Kind.SERVES, generation)
        for link, (_, question, _) in self._asking.items():
            if question is not None and "copies" in question:
                self._sockets.send(link, hello.packed({"serves": generation}))
        keys = {number: key for key, number in self._links.numbers.items()}
        coming = {link: keys[member] for member, link in self._link_of.items()}
        self._links.succeed(coming, {link: key for link, (key, _, _) in self._asking.items()})
        self._site.server.succeed()
        for member in self._link_of:
            self._site.server.hub.expect(member)
        self._hub_link, self._links.announce_takeover = None, self._tell_old_hub

    def _tell_old_hub(self) -> None:
        """It may be there still, with its links cut: it is to end."""
        if self._hub_link is None and (link := self._poll()) is not None:
            self._hub_link = link
            self._links.ignore(link)
            question = self._question(generation=self._replication.generation)
            self._sockets.send(link, hello.packed(question))

    def _end(self) -> None:
        """The hub has ended training."""
        if self._standby.version < self._finished:
            log.warning(
                "the hub has ended training with version %d, and is gone; this standby has %d",
                self._finished,
                self._standby.version,
            )
        self._to_hub(Kind.FAREWELL)
        until = time.monotonic() + 1.0
        while (
            self._hub_link is not None and self._sockets.unsent(self._hub_link) and time.monotonic() < until
        ):
            self._sockets.next(0.05)
