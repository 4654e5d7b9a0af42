"""A member's link to its hub, which comes back when it breaks: a `HubLink` over sealed streams.

When it has ended the hub is called again, after pauses that grow, for `away_s`; the member's machine then
says again what was not answered. Nothing is lost by that but time: the hub goes by the numbers of tasks.

Where the hub names another member as the way, `Ways` has the links to that. A member that is one itself has
a thread for it: see `aggregator.link`.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from tweed import _core
from tweed.errors import DataError, PeerLost, ShapeMismatch, UsageError
from tweed.hub.keyed.ways import Ways
from tweed.hub.machine.worker import Worker
from tweed.hub.standby.link import WINDOW, StandbyLink
from tweed.hub.wire import bodies, control
from tweed.hub.wire.control import Kind
from tweed.hub.wire.form import ContributionForm
from tweed.hub.wire.framing import framed, split
from tweed.hub.wire.head import HEAD, body_of, from_hub
from tweed.hub.wire.messages import (
    CancelGroup,
    EagerOffer,
    FromHub,
    FromWay,
    FromWorker,
    Gather,
    Grant,
    ModelGrant,
    ModelRequest,
    Offer,
    Outcome,
    Payload,
    Sum,
    Task,
)
from tweed.links import hello
from tweed.links.address import HubAddress
from tweed.links.client import Event, ask
from tweed.rng import uniform

log = logging.getLogger("tweed")
#: Seconds until a call is made again, at first and at most; times up to 1.5 by chance. A hub that has ended
#: training waits half a minute for those who are away: each has called within it.
_FIRST_PAUSE_S, _MOST_PAUSE_S, _MOST_PAUSE_WITH_STANDBY_S = 0.25, 10.0, 2.0
#: So long a member waits for a standby that lacks much, and at the end for copies to leave.
_STANDBY_S = 10.0
#: A message for the worker, and what came with it.
Came = tuple[FromHub | FromWay, Tensor]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a member knows of the standby; `StandbyLink` says what each means."""

    known: bool = False
    safe: int = 0
    ready: bool = False


class MemberLink:
    """See above.

    Args:
      address: the hub's.
      links: that are opened, and have no link yet.
      terms: all that member and hub must agree on, a line each.
      away_s: so long the hub may be gone before PeerLost is raised.
      returns: a link that has ended may be made anew; else PeerLost is raised, as in a group.

    Attributes:
      renewed: the link that came last is to another hub: the standby of that which is gone.
      worker, workers: which worker this one is, and how many the hub counts on; draws go by that.
      forms: of a worker, how its contributions cross.

    The first call is made by `call`, or by the first message. It and `receive` raise:
      PeerLost: the hub cannot be reached.
      UsageError: it does not let this member in, or another process has its address.
      ShapeMismatch: it trains another model, or by another strategy; the text names the first difference.
    """

    forms: Callable[[int], ContributionForm]

    def __init__(
        self,
        address: HubAddress,
        links: _core.HubLinks,
        terms: Sequence[str],
        away_s: float = 600.0,
        returns: bool = True,
    ) -> None:
        self._most_bytes = 0
        self._address, self._terms, self._away_s, self._returns = address, terms, away_s, returns
        self._links, self._ways, self._standby = links, Ways(links), StandbyLink(links)
        self._link: int | None = None
        self._called = False
        self._came: deque[Came] = deque()
        self._first: Payload | None = None  # which waits until the standby has its copy
        self._calls, self._model_s = 0, 0.0
        self.worker, self.workers = -1, 0
        self.renewed = False

    @property
    def most_bytes(self) -> int:
        return self._most_bytes

    @most_bytes.setter
    def most_bytes(self, numbytes: int) -> None:
        self._most_bytes = self._ways.most_bytes = numbytes
        if self._link is not None:
            self._links.allow(self._link, HEAD.size + max(numbytes, bodies.MOST_BYTES))

    @property
    def keeps(self) -> bool:
        return self._standby.known

    @property
    def key(self) -> str:
        """This member's own, 64 hex digits."""
        return self._links.key

    def call(self) -> None:
        """Calls the hub, and is let in."""
        self._called = True
        self._connect()

    def send(self, message: FromWorker | EagerOffer) -> None:
        """Over a link that has ended nothing goes, and `receive` tells. A payload waits until
        the standby has its copy, where that is to go first."""
        if not self._called:
            self.call()
        if isinstance(message, Payload) and message.copy_first and self._standby.ready:
            self._first = message
        else:
            self._send(message)

    def _send(self, message: FromWorker | EagerOffer) -> None:
        if isinstance(message, Payload | ModelRequest) and message.via is not None:
            self._came.extend(self._ways.send(message, time.monotonic()))
            return
        if isinstance(message, Payload):
            self._ways.give_up()
        elif isinstance(message, Offer):
            message = replace(message, model_s=self._model_s)
        elif isinstance(message, EagerOffer):
            message = replace(message, offer=replace(message.offer, model_s=self._model_s))
        body = bodies.pack_sum(message) if isinstance(message, Sum) else body_of(message)
        if self._link is not None:
            self._links.send(self._link, framed(message, 0 if body is None else len(body)), body)

    def receive(self) -> Came | None:
        """What came before the link ended is heard first: it may be the end of training."""
        while not self._came:
            if not self._linked:
                self.renewed = self._again()
                return None
            self._wait(3600.0)
        return self._came.popleft()

    def replicate(self, worker: Worker) -> None:
        until = time.monotonic() + _STANDBY_S
        while (seen := self._seen()) is not None:
            if not seen.known:
                worker.forget()
                return
            worker.kept(seen.safe)
            self._copy(worker)
            if worker.keeping <= WINDOW:
                return
            if not seen.ready or time.monotonic() > until:
                log.warning("the standby is %d contributions behind; it lacks the oldest", worker.keeping)
                worker.forget(worker.keeping - WINDOW)
                return
            self._look(0.05)

    def flush(self) -> None:
        """What comes meanwhile is kept."""
        while self._linked and self._link is not None and self._links.unsent(self._link):
            self._wait(0.01)

    def break_off(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            self._links.cut(link, "a call of this member was broken off")

    def close(self) -> None:
        """Ends the link. Copies for the standby leave before, as far as they can."""
        until = time.monotonic() + _STANDBY_S
        while not self._standby.flushed() and time.monotonic() < until:
            self._keep(self._links.next(0.01))
        self._links.close()
        self._standby.close()
        self._ways.close()

    def _seen(self) -> Seen | None:
        """What there is of a standby; None: there is a new link to the hub, and the worker hears of it."""
        return Seen(self._standby.known, self._standby.safe, self._standby.ready)

    def _copy(self, worker: Worker) -> None:
        """What the standby may lack goes there."""
        self._standby.send(worker.unsafe())

    def _look(self, patience_s: float) -> None:
        """Looks what comes, while the standby is waited for."""
        self._keep(self._links.next(patience_s))

    @property
    def _linked(self) -> bool:
        """Whether the link to the hub is still there, and it is the hub."""
        return self._link is not None and not self._standby.serves

    def _wait(self, patience_s: float) -> None:
        """Waits for something to come, and keeps it."""
        now = time.monotonic()
        self._came.extend(self._ways.turn(now))
        wait_s = 0.0 if self._came else min(self._standby.turn(now), self._ways.wait_s(now))
        self._keep(self._links.next(min(patience_s, wait_s)))
        if self._first is not None and (self._standby.had >= self._first.number or not self._standby.ready):
            self._send(self._first)
            self._first = None

    def _keep(self, events: Sequence[Event]) -> None:
        for link, what in events:
            if self._standby.is_at(link):
                self._standby.heard(what)
            elif link != self._link:
                self._other(link, what)
            elif isinstance(what, str):
                log.warning("the link to the hub at %s has ended (%s)", self._address.place, what)
                self._link = None
            elif isinstance(what, bytearray):
                if control.is_control(what):
                    self._of_standby(control.read(what))
                else:
                    self._take(*split(what))

    def _take(self, head: Sequence[float], body: Tensor) -> None:
        """A message of the hub."""
        message = from_hub(head)
        if isinstance(message, Gather | CancelGroup | ModelGrant):
            self._serve(message, body)
            return
        if isinstance(message, Outcome):
            self._ways.done()
        elif isinstance(message, Task) and self._link is not None:
            self._model_s = self._links.took(self._link) if message.via is None else 0.0
        if isinstance(message, Task | Grant) and message.via is not None:
            self._ways.named(message.via, bodies.read_address(body.numpy().tobytes()))
        self._came.append((message, body))

    def _serve(self, message: Gather | CancelGroup | ModelGrant, body: Tensor) -> None:
        raise DataError(f"the hub asks this member for {message}, and it has not offered that")

    def _other(self, link: int, what: bytes | bytearray | str) -> None:
        """Something has come over another link."""
        if not isinstance(what, bytes):
            self._came.extend(self._ways.heard(link, what))

    def _of_standby(self, message: control.Control) -> None:
        """What the hub says of a standby."""
        if message.kind is Kind.STANDBY:
            self._standby.named(message.number, bytes(message.body).decode(errors="replace"))
        elif message.kind is Kind.RENOUNCE and self._standby.renounce(message.number):
            assert self._link is not None  # it has said so
            self._links.send(self._link, control.head(Kind.RENOUNCED, message.number))

    def _again(self) -> bool:
        """Makes the link anew. Returns whether it is to another hub."""
        self._ways.reset()
        if not self._returns:
            raise PeerLost(f"the hub at {self._address.place} is gone, and with it its group")
        return self._connect()

    def _greeting(self) -> dict[str, Any]:
        return {"terms": hello.digest(self._terms), "worker": self.worker}

    def _connect(self) -> bool:
        """Calls until there is a link and the hub has this member in, or its standby. Returns whether it is
        that."""
        until, pause, answer = time.monotonic() + self._away_s, _FIRST_PAUSE_S, None
        self._came.clear()
        self._first, renewed = None, False
        while answer is None:
            try:
                if self._standby.serves:
                    self._move()
                    renewed = True
                if self._link is None:
                    began = time.monotonic()
                    self._link = self._links.call(self._address.place, self._address.key)
                    self._ways.hub_s = time.monotonic() - began
                answer, more = ask(
                    self._links, self._link, self._greeting(), lambda event: self._keep([event])
                )
            except PeerLost as error:
                if self._link is not None:
                    self._links.cut(self._link, "it does not answer")
                self._link = None
                if time.monotonic() + pause > until:
                    raise
                log.warning("%s; calling again in %.1f s", error, pause)
                self._calls += 1
                self._pause(pause * (0.5 + uniform(int(self.key[:12], 16), self._calls)), until)
                pause = min(2 * pause, _MOST_PAUSE_S)
        self._check(answer)
        self._keep(more)
        self.most_bytes = self._most_bytes
        return renewed

    def _pause(self, pause_s: float, until: float) -> None:
        """Waits until it is time for another call; of that it has no need if the standby is the hub. Who has
        promised waits for the standby."""
        now, asked = time.monotonic(), False
        again = now + (min(pause_s, _MOST_PAUSE_WITH_STANDBY_S) if self._standby.known else pause_s)
        while not self._standby.serves and (now < again or self._standby.voter.promised):
            if now > until:
                raise PeerLost(
                    f"the hub at {self._address.place} is lost, and within {self._away_s:g} s its standby at "
                    f"{self._standby.address.place} has not taken over: most members may still be at the "
                    "hub, or the standby is gone as well; start this member again when one of both is back"
                )
            if self._standby.ready and not asked:
                self._standby.promise()
                asked = True
            wait_s = min(self._standby.turn(now), 0.5, max(again - now, 0.05))
            self._keep(self._links.next(wait_s))
            self._go_on()
            now = time.monotonic()

    def _go_on(self) -> None:
        """Called while the hub is called: whoever wants to leave raises."""

    def _move(self) -> None:
        """The standby is the hub from now on."""
        log.warning("the standby at %s has taken over", self._standby.address.place)
        if self._link is not None:
            self._links.cut(self._link, "its standby has taken over")
        self._address = self._standby.address
        self._link = self._standby.take()

    def _check(self, answer: dict[str, Any]) -> None:
        """Raises as the class, unless the hub has this member in."""
        if "worker" not in answer:
            self._links.close()
        if "terms" in answer:
            why = hello.difference(self._terms, answer["terms"])
            raise ShapeMismatch(f"the hub at {self._address.place} trains something else: {why}")
        if "worker" not in answer:
            raise UsageError(f"{self._address.place} takes no members: {answer.get('refused')}")
        if self.worker not in (-1, answer["worker"]):
            raise PeerLost(
                f"the hub at {self._address.place} knows this member as worker {answer['worker']}, and its "
                f"contributions were made as worker {self.worker}: start this member again"
            )
        self.worker, self.workers = int(answer["worker"]), int(answer["workers"])
