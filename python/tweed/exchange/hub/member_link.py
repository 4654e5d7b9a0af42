"""A member's link to its hub, which comes back when it breaks: a `HubLink` of a process without a group.

When it has ended the hub is called again, after pauses that grow, for `away_s`; the member's machine then
says again what was not answered. Nothing is lost by that but time: the hub goes by the numbers of tasks.
"""

from __future__ import annotations

import logging
import struct
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tweed import _core
from tweed.errors import DataError, PeerLost, ShapeMismatch
from tweed.exchange.hub import greetings
from tweed.exchange.hub.address import Credentials, HubAddress
from tweed.exchange.hub.head import NUMBERS, follows, from_hub, head_of
from tweed.exchange.hub.messages import FromHub, FromWorker, Payload
from tweed.rng import uniform

log = logging.getLogger("tweed")
HEAD = struct.Struct(f"<{NUMBERS}d")
#: Seconds until a call is made again, at first and at most.
_FIRST_PAUSE_S, _MOST_PAUSE_S = 0.25, 20.0
_ANSWER_S = 30.0
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
        self._came: deque[tuple[FromHub, Tensor]] = deque()
        self._calls = 0
        self._connect()

    @property
    def most_bytes(self) -> int:
        """See `HubLink`."""
        return self._most_bytes

    @most_bytes.setter
    def most_bytes(self, numbytes: int) -> None:
        self._most_bytes = numbytes
        self._links.allow(self._link, HEAD.size + numbytes)

    @property
    def key(self) -> str:
        """This member's own, 64 hex digits."""
        return self._links.key

    def send(self, message: FromWorker) -> None:
        """See `HubLink`; over a link that has ended nothing goes, and `receive` tells."""
        payload = message.value.numpy().tobytes() if isinstance(message, Payload) else None
        head = HEAD.pack(*head_of(message, 0 if payload is None else len(payload)))
        self._links.send(self._link, head, payload)

    def receive(self) -> tuple[FromHub, Tensor] | None:
        """See `HubLink`."""
        while not self._came:
            if not self._stands(3600.0):
                self._connect()
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
                self._came.append(self._message(what))
        return True

    def _message(self, data: bytearray) -> tuple[FromHub, Tensor]:
        head = HEAD.unpack_from(data) if len(data) >= HEAD.size else (-1.0,) * NUMBERS
        message = from_hub(head)
        if follows(head, self.most_bytes) != len(data) - HEAD.size:
            raise DataError(f"the hub announced {head[2]} bytes, and {len(data) - HEAD.size} came")
        empty = len(data) == HEAD.size
        return message, torch.empty(0, dtype=torch.uint8) if empty else _bytes(data)

    def _connect(self) -> None:
        """Calls until there is a link and the hub has this member in."""
        until, pause, answer = time.monotonic() + self._away_s, _FIRST_PAUSE_S, None
        self._came.clear()
        while answer is None:
            try:
                self._link = self._links.call(self._address.place, self._address.key)
                asked = {"terms": greetings.digest(self._terms)}
                answer, more = ask(self._links, self._link, asked)
            except PeerLost as error:
                if time.monotonic() + pause > until:
                    raise
                log.warning("%s; calling again in %.1f s", error, pause)
                self._calls += 1
                time.sleep(pause * (0.5 + uniform(int(self.key[:12], 16), self._calls)))
                pause = min(2 * pause, _MOST_PAUSE_S)
        if "terms" in answer:
            self._links.close()
            why = greetings.difference(self._terms, answer["terms"])
            raise ShapeMismatch(f"the hub at {self._address.place} trains something else: {why}")
        self.worker, self.workers = int(answer["worker"]), int(answer["workers"])
        self._keep(more)
        self.most_bytes = self._most_bytes


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


def _open(credentials: Credentials) -> _core.HubLinks:
    return _core.HubLinks(
        secret=credentials.secret, secret_file=credentials.secret_file, key_file=credentials.key_file
    )


def _bytes(data: bytearray) -> Tensor:
    """What comes behind the head, without a copy."""
    return torch.frombuffer(data, dtype=torch.uint8, offset=HEAD.size)
