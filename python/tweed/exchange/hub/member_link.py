"""A member's link to its hub, which comes back when it breaks: a `HubLink` of a process without a group.

When it has ended the hub is called again, after pauses that grow, for `away_s`; the member's machine then
says again what was not answered. Nothing is lost by that but time: the hub goes by the numbers of tasks.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tweed import _core
from tweed.errors import DataError, PeerLost, ShapeMismatch, UsageError
from tweed.exchange.hub import control, greetings
from tweed.exchange.hub.address import Credentials, HubAddress
from tweed.exchange.hub.control import Kind
from tweed.exchange.hub.head import HEAD, NUMBERS, body_of, follows, from_hub, head_of
from tweed.exchange.hub.messages import FromHub, FromWorker, Payload
from tweed.exchange.hub.replica_link import WINDOW, ReplicaLink
from tweed.exchange.hub.worker import Worker
from tweed.rng import uniform

log = logging.getLogger("tweed")
#: Seconds until a call is made again, at first and at most; times up to 1.5 by chance. A hub that has ended
#: training waits half a minute for those who are away: each has called within it.
_FIRST_PAUSE_S, _MOST_PAUSE_S, _MOST_PAUSE_WITH_REPLICA_S = 0.25, 10.0, 2.0
_ANSWER_S = 30.0
#: So long a member waits for a replica that lacks much, and at the end for copies to leave.
_REPLICA_S = 10.0
#: A link's number, and who has joined, a message, or why it has ended.
_Event = tuple[int, bytes | bytearray | str]


class MemberLink:
    """See above.

    Args:
      address: the hub's.
      credentials: what is shown there.
      terms: all that member and hub must agree on, a line each.
      away_s: so long the hub may be gone before PeerLost is raised.

    Attributes:
      renewed: the link that came last is to another hub: the replica of that which is gone.
      worker, workers: which worker this one is, and how many the hub counts on; draws go by that.

    Raises:
      PeerLost: the hub cannot be reached.
      UsageError: it does not let this member in, or another process has its address.
      ShapeMismatch: it trains another model, or by another strategy; the text names the first difference.
    """

    def __init__(
        self, address: HubAddress, credentials: Credentials, terms: Sequence[str], away_s: float = 600.0
    ) -> None:
        self._most_bytes = 0
        self._address, self._terms, self._away_s = address, terms, away_s
        self._links = _open(credentials)
        self._replica = ReplicaLink(self._links)
        self._link: int | None = None
        self._came: deque[tuple[FromHub, Tensor]] = deque()
        self._first: Payload | None = None  # which waits until the replica has its copy
        self._calls = 0
        self.worker = -1
        self.renewed = False
        self._connect()

    @property
    def most_bytes(self) -> int:
        """See `HubLink`."""
        return self._most_bytes

    @most_bytes.setter
    def most_bytes(self, numbytes: int) -> None:
        self._most_bytes = numbytes
        if self._link is not None:
            self._links.allow(self._link, HEAD.size + numbytes)

    @property
    def keeps(self) -> bool:
        """See `HubLink`."""
        return self._replica.known

    @property
    def key(self) -> str:
        """This member's own, 64 hex digits."""
        return self._links.key

    def send(self, message: FromWorker) -> None:
        """See `HubLink`; over a link that has ended nothing goes, and `receive` tells. A payload waits until
        the replica has its copy, where that is to go first."""
        if isinstance(message, Payload) and message.copy_first and self._replica.ready:
            self._first = message
        else:
            self._send(message)

    def _send(self, message: FromWorker) -> None:
        body = body_of(message)
        head = HEAD.pack(*head_of(message, 0 if body is None else len(body)))
        if self._link is not None:
            self._links.send(self._link, head, body)

    def receive(self) -> tuple[FromHub, Tensor] | None:
        """See `HubLink`. What came before the link ended is heard first: it may be the end of training."""
        while not self._came:
            if not self._linked:
                self._connect()
                return None
            self._wait(3600.0)
        return self._came.popleft()

    def replicate(self, worker: Worker) -> None:
        """See `HubLink`."""
        until = time.monotonic() + _REPLICA_S
        while True:
            if not self._replica.known:
                worker.forget()
                return
            worker.kept(self._replica.safe)
            kept = worker.unsafe()
            self._replica.send(kept)
            if len(kept) <= WINDOW:
                return
            if not self._replica.ready or time.monotonic() > until:
                worker.forget(len(kept) - WINDOW)
                log.warning("the replica is %d contributions behind; the oldest is forgotten", len(kept))
                return
            self._keep(self._links.next(0.05))

    def flush(self) -> None:
        """See `HubLink`. What comes meanwhile is kept."""
        while self._linked and self._link is not None and self._links.unsent(self._link):
            self._wait(0.01)

    def close(self) -> None:
        """See `HubLink`. Copies leave before."""
        until = time.monotonic() + _REPLICA_S
        while not self._replica.flushed() and time.monotonic() < until:
            self._keep(self._links.next(0.01))
        self._links.close()
        self._replica.close()

    @property
    def _linked(self) -> bool:
        """Whether the link to the hub is still there, and it is the hub."""
        return self._link is not None and not self._replica.serves

    def _wait(self, patience_s: float) -> None:
        """Waits for something to come, and keeps it."""
        wait_s = self._replica.turn(time.monotonic())
        self._keep(self._links.next(min(patience_s, wait_s)))
        if self._first is not None and (self._replica.had >= self._first.number or not self._replica.ready):
            self._send(self._first)
            self._first = None

    def _keep(self, events: Sequence[_Event]) -> None:
        for link, what in events:
            if self._replica.is_at(link):
                self._replica.heard(what)
            elif link == self._link and isinstance(what, str):
                log.warning("the link to the hub at %s has ended (%s)", self._address.place, what)
                self._link = None
            elif link == self._link and isinstance(what, bytearray):
                if control.is_control(what):
                    self._of_replica(control.read(what))
                else:
                    self._came.append(self._message(what))

    def _of_replica(self, message: control.Control) -> None:
        """What the hub says of a replica."""
        if message.kind is Kind.REPLICA:
            self._replica.named(message.number, bytes(message.body).decode(errors="replace"))
        elif message.kind is Kind.RENOUNCE and self._replica.renounce(message.number):
            assert self._link is not None  # it has said so
            self._links.send(self._link, control.head(Kind.RENOUNCED, message.number))

    def _message(self, data: bytearray) -> tuple[FromHub, Tensor]:
        head = HEAD.unpack_from(data) if len(data) >= HEAD.size else (-1.0,) * NUMBERS
        message = from_hub(head)
        if follows(head, self.most_bytes) != len(data) - HEAD.size:
            raise DataError(f"the hub announced {head[2]} bytes, and {len(data) - HEAD.size} came")
        empty = len(data) == HEAD.size
        return message, torch.empty(0, dtype=torch.uint8) if empty else _bytes(data)

    def _connect(self) -> None:
        """Calls until there is a link and the hub has this member in, or its replica."""
        until, pause, answer = time.monotonic() + self._away_s, _FIRST_PAUSE_S, None
        self._came.clear()
        self._first, self.renewed = None, False
        while answer is None:
            try:
                if self._replica.serves:
                    self._move()
                if self._link is None:
                    self._link = self._links.call(self._address.place, self._address.key)
                asked = {"terms": greetings.digest(self._terms), "worker": self.worker}
                answer, more = ask(self._links, self._link, asked, lambda event: self._keep([event]))
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

    def _pause(self, pause_s: float, until: float) -> None:
        """Waits until it is time for another call; of that it has no need if the replica is the hub. Who has
        promised waits for the replica."""
        now, asked = time.monotonic(), False
        again = now + (min(pause_s, _MOST_PAUSE_WITH_REPLICA_S) if self._replica.known else pause_s)
        while not self._replica.serves and (now < again or self._replica.voter.promised):
            if now > until:
                raise PeerLost(
                    f"the hub at {self._address.place} is lost, and within {self._away_s:g} s its replica at "
                    f"{self._replica.address.place} has not taken over: most members may still be at the "
                    "hub, or the replica is gone as well; start this member again when one of both is back"
                )
            if self._replica.ready and not asked:
                self._replica.promise()
                asked = True
            wait_s = min(self._replica.turn(now), 0.5, max(again - now, 0.05))
            self._keep(self._links.next(wait_s))
            now = time.monotonic()

    def _move(self) -> None:
        """The replica is the hub from now on."""
        log.warning("the replica at %s has taken over", self._replica.address.place)
        if self._link is not None:
            self._links.cut(self._link, "its replica has taken over")
        self._address, self.renewed = self._replica.address, True
        self._link = self._replica.take()

    def _check(self, answer: dict[str, Any]) -> None:
        """Raises as the class, unless the hub has this member in."""
        if "worker" not in answer:
            self._links.close()
        if "terms" in answer:
            why = greetings.difference(self._terms, answer["terms"])
            raise ShapeMismatch(f"the hub at {self._address.place} trains something else: {why}")
        if "worker" not in answer:
            raise UsageError(f"{self._address.place} takes no members: {answer.get('refused')}")
        if self.worker not in (-1, answer["worker"]):
            raise PeerLost(
                f"the hub at {self._address.place} knows this member as worker {answer['worker']}, and its "
                f"contributions were made as worker {self.worker}: start this member again"
            )
        self.worker, self.workers = int(answer["worker"]), int(answer["workers"])


def job(address: HubAddress, credentials: Credentials) -> dict[str, Any] | None:
    """What the hub says that its members are to do; None: it does not say. Raises as `MemberLink`."""
    links = _open(credentials)
    try:
        answer, _ = ask(links, links.call(address.place, address.key), {"ask": "job"})
    finally:
        links.close()
    said = answer.get("job")
    return said if isinstance(said, dict) else None


def ask(
    links: _core.HubLinks,
    link: int,
    question: dict[str, Any],
    other: Callable[[_Event], None] = lambda event: None,
) -> tuple[dict[str, Any], Sequence[_Event]]:
    """The hub's answer over a link that is new, and what came behind it. Raises PeerLost if none comes.

    Args:
      other: called with what happens on other links meanwhile.
    """
    links.allow(link, greetings.MOST_BYTES)
    links.send(link, greetings.packed(question))
    until = time.monotonic() + _ANSWER_S
    while time.monotonic() < until:
        events = links.next(1.0)
        for place, (which, what) in enumerate(events):
            if which == link and isinstance(what, str):
                raise PeerLost(f"the link to the hub has ended: {what}")
            if which == link and isinstance(what, bytearray):
                return greetings.read(what), events[place + 1 :]
            if which != link:
                other((which, what))
    raise PeerLost(f"the hub has let this member in, and does not answer within {_ANSWER_S:g} s")


def _open(credentials: Credentials) -> _core.HubLinks:
    return _core.HubLinks(
        secret=credentials.secret, secret_file=credentials.secret_file, key_file=credentials.key_file
    )


def _bytes(data: bytearray) -> Tensor:
    """What comes behind the head, without a copy."""
    return torch.frombuffer(data, dtype=torch.uint8, offset=HEAD.size)
