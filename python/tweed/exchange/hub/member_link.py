"""A member's link to its hub, which comes back when it breaks: a `HubLink` over sealed streams.

When it has ended the hub is called again, after pauses that grow, for `away_s`; the member's machine then
says again what was not answered. Nothing is lost by that but time: the hub goes by the numbers of tasks.

Where the hub names another member as the way, `Ways` has the links to that. A member that is one itself has
a thread for it: see `live_aggregator`.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from tweed import _core
from tweed.errors import DataError, PeerLost, ShapeMismatch
from tweed.exchange.hub import bodies, greetings
from tweed.exchange.hub.address import Credentials, HubAddress
from tweed.exchange.hub.form import ContributionForm
from tweed.exchange.hub.framing import HEAD, framed, split
from tweed.exchange.hub.head import from_hub
from tweed.exchange.hub.messages import (
    Fetch,
    FromHub,
    FromWay,
    FromWorker,
    Gather,
    Grant,
    Lend,
    Offer,
    Outcome,
    Payload,
    Sum,
    Task,
    Void,
)
from tweed.exchange.hub.ways import Ways
from tweed.rng import uniform

log = logging.getLogger("tweed")
#: Seconds until a call is made again, at first and at most.
_FIRST_PAUSE_S, _MOST_PAUSE_S = 0.25, 20.0
_ANSWER_S = 30.0
#: A link's number, and who has joined, a message, or why it has ended.
_Event = tuple[int, bytes | bytearray | str | None]
#: A message for the worker, and what came with it.
Came = tuple[FromHub | FromWay, Tensor]


class MemberLink:
    """See above.

    Args:
      address: the hub's.
      links: that are opened, and have no link yet.
      terms: all that member and hub must agree on, a line each.
      away_s: so long the hub may be gone before PeerLost is raised.
      returns: a link that has ended may be made anew; else PeerLost is raised, as in a group.

    Attributes:
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
        self._links, self._ways = links, Ways(links)
        self._link = 0  # there is none
        self._came: deque[Came] = deque()
        self._calls, self._model_s = 0, 0.0
        self.worker = self.workers = 0

    @property
    def most_bytes(self) -> int:
        """See `HubLink`."""
        return self._most_bytes

    @most_bytes.setter
    def most_bytes(self, numbytes: int) -> None:
        self._most_bytes = self._ways.most_bytes = numbytes
        self._links.allow(self._link, HEAD.size + max(numbytes, bodies.MOST_BYTES))

    @property
    def key(self) -> str:
        """This member's own, 64 hex digits."""
        return self._links.key

    def call(self) -> None:
        """Calls the hub, and is let in."""
        self._connect()

    def send(self, message: FromWorker) -> None:
        """See `HubLink`; over a link that has ended nothing goes, and `receive` tells."""
        if not self._link:
            self.call()
        if isinstance(message, Payload | Fetch) and message.via is not None:
            self._came.extend(self._ways.send(message))
            return
        body = None
        if isinstance(message, Payload):
            self._ways.give_up()
            body = message.value.numpy().tobytes()
        elif isinstance(message, Offer):
            message = replace(message, model_s=self._model_s)
        elif isinstance(message, Sum):
            body = bodies.pack_sum(message)
        self._links.send(self._link, framed(message, 0 if body is None else len(body)), body)

    def receive(self) -> Came | None:
        """See `HubLink`."""
        while not self._came:
            if not self._stands(3600.0):
                self._again()
                return None
        return self._came.popleft()

    def flush(self) -> None:
        """See `HubLink`. What comes meanwhile is kept."""
        while self._links.unsent() and self._stands(0.01):
            pass

    def close(self) -> None:
        """See `HubLink`."""
        self._links.close()

    def _stands(self, patience_s: float) -> bool:
        """Waits for something to come, and keeps it. Whether the link is still there."""
        return self._keep(self._links.next(patience_s))

    def _keep(self, events: Sequence[_Event]) -> bool:
        for link, what in events:
            if link == self._link and isinstance(what, str):
                log.warning("the link to the hub at %s has ended (%s)", self._address.place, what)
                return False
            if link == self._link and isinstance(what, bytearray):
                self._take(*split(what))
            elif link != self._link and what is not None:
                self._other(link, what)
        return True

    def _take(self, head: Sequence[float], body: Tensor) -> None:
        """A message of the hub."""
        message = from_hub(head)
        if isinstance(message, Gather | Void | Lend):
            self._serve(message, body)
            return
        if isinstance(message, Outcome):
            self._ways.done()
        elif isinstance(message, Task):
            self._model_s = self._links.took(self._link) if message.via is None else 0.0
        if isinstance(message, Task | Grant) and message.via is not None:
            self._ways.named(message.via, bodies.read_address(body.numpy().tobytes()))
        self._came.append((message, body))

    def _serve(self, message: Gather | Void | Lend, body: Tensor) -> None:
        raise DataError(f"the hub asks this member for {message}, and it has not offered that")

    def _other(self, link: int, what: bytes | bytearray | str) -> None:
        """Something has come over another link."""
        if not isinstance(what, bytes):
            self._came.extend(self._ways.heard(link, what))

    def _again(self) -> None:
        """Makes the link anew."""
        self._ways.reset()
        if not self._returns:
            raise PeerLost(f"the hub at {self._address.place} is gone, and with it its group")
        self._connect()

    def _greeting(self) -> dict[str, Any]:
        return {"terms": greetings.digest(self._terms)}

    def _connect(self) -> None:
        """Calls until there is a link and the hub has this member in."""
        until, pause, answer = time.monotonic() + self._away_s, _FIRST_PAUSE_S, None
        self._came.clear()
        while answer is None:
            try:
                self._link = self._links.call(self._address.place, self._address.key)
                answer, more = ask(self._links, self._link, self._greeting())
            except PeerLost as error:
                if time.monotonic() + pause > until:
                    raise
                log.warning("%s; calling again in %.1f s", error, pause)
                self._calls += 1
                self._pause(pause * (0.5 + uniform(int(self.key[:12], 16), self._calls)))
                pause = min(2 * pause, _MOST_PAUSE_S)
        if "terms" in answer:
            self._links.close()
            why = greetings.difference(self._terms, answer["terms"])
            raise ShapeMismatch(f"the hub at {self._address.place} trains something else: {why}")
        self.worker, self.workers = int(answer["worker"]), int(answer["workers"])
        self._keep(more)
        self.most_bytes = self._most_bytes

    def _pause(self, seconds: float) -> None:
        time.sleep(seconds)


def job(address: HubAddress, credentials: Credentials) -> dict[str, Any] | None:
    """What the hub says that its members are to do; None: it does not say. Raises as `MemberLink`."""
    links = opened(credentials)
    try:
        answer, _ = ask(links, links.call(address.place, address.key), {"ask": "job"})
    finally:
        links.close()
    said = answer.get("job")
    return said if isinstance(said, dict) else None


def ask(
    links: _core.HubLinks, link: int, question: dict[str, Any]
) -> tuple[dict[str, Any], Sequence[_Event]]:
    """The hub's answer over a link that is new, and what came behind it. Raises PeerLost if none comes."""
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
    raise PeerLost(f"the hub has let this member in, and does not answer within {_ANSWER_S:g} s")


def opened(credentials: Credentials) -> _core.HubLinks:
    """Links of a process that shows these."""
    return _core.HubLinks(
        secret=credentials.secret, secret_file=credentials.secret_file, key_file=credentials.key_file
    )
