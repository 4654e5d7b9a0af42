"""Split learning over sealed links: clients have a key and no rank; they come, go and return.

    with KeyedServer(server, Credentials(secret), "0.0.0.0:7070") as keyed:      keyed.address is for clients
        keyed.serve(1000)
    train_keyed(client, batches, HubAddress.parse("KEY@host:7070"), Credentials(secret))

A client is known by its key. While it is gone steps go on without it. When it returns it sends its batch
again, and gets that batch's gradient again if it was computed already.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Self

from torch import Tensor

from tweed import _core
from tweed.errors import DeadlineExceeded, PeerLost, TweedError, UsageError
from tweed.links.address import Credentials, HubAddress
from tweed.links.client import opened
from tweed.workloads.split.client import SplitClient
from tweed.workloads.split.messages import write
from tweed.workloads.split.server import SplitServer

log = logging.getLogger("tweed")
#: No message is longer, unless asked for.
MOST_BYTES = 1 << 28
_LOOK_S, _FIRST_PAUSE_S, _MOST_PAUSE_S = 0.2, 0.1, 5.0


class KeyedServer:
    """A server's end of sealed links. A context manager, which closes them.

    Args:
      server: whose clients are the keys of those that call.
      credentials: the secret that admits, and the file of the server's key.
      place: "host:port" to listen at; port 0: any.
      most_bytes: of a message.

    Attributes:
      address: what clients call.
    """

    def __init__(
        self, server: SplitServer, credentials: Credentials, place: str, most_bytes: int = MOST_BYTES
    ) -> None:
        self._server = server
        self._links = opened(credentials, most_bytes)
        self.address = HubAddress(self._links.listen(place, "server"), self._links.key)
        self._link_of: dict[str, int] = {}
        self._key_of: dict[int, str] = {}

    def serve(self, steps: int, patience_s: float = 60.0) -> None:
        """Serves for so many steps, and until what it has to say has left.

        Args:
          patience_s: so long it waits for something to happen.

        Raises: DeadlineExceeded names the clients that are there, and from which nothing came.
        Cost: what is broadcast goes to each client by itself.
        """
        end = self._server.steps + steps
        until = time.monotonic() + patience_s
        while self._server.steps < end or (self._links.unsent() and self._link_of):
            for link, what in self._links.next(_LOOK_S):
                until = time.monotonic() + patience_s
                self._happened(link, what)
                self._send()
            if time.monotonic() > until:
                raise DeadlineExceeded(
                    f"step {self._server.steps}: nothing came for {patience_s:g} s. {len(self._link_of)} "
                    f"clients are there; due from {self._server.awaited or 'others, which do not call'}"
                )

    def _happened(self, link: int, what: bytes | bytearray | str) -> None:
        if isinstance(what, bytes):  # its key: a link is new, and takes the place of the one before
            key = what.hex()
            self._key_of.pop(self._link_of.get(key, -1), None)
            self._key_of[link], self._link_of[key] = key, link
            self._server.join(key)
        elif (key := self._key_of.get(link, "")) and isinstance(what, bytearray):
            self._heard(key, link, what)
        elif key:
            log.info("client %s is gone: %s", key[:8], what)
            self._gone(key, link)

    def _heard(self, key: str, link: int, data: bytearray) -> None:
        """A message; a client that sends what cannot be is told so, and the others go on."""
        try:
            self._server.handle(key, data)
        except UsageError:
            raise  # the server's own
        except TweedError as error:
            log.warning("client %s is cut off: %s", key[:8], error)
            self._links.send(link, write("failed", 0, error=type(error).__name__, text=str(error)))
            self._gone(key, link)

    def _gone(self, key: str, link: int) -> None:
        del self._key_of[link], self._link_of[key]
        self._server.leave(key)

    def _send(self) -> None:
        for send in self._server.poll():
            for key in send.to:
                if (link := self._link_of.get(str(key))) is not None:
                    self._links.send(link, send.data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._links.close()


def train_keyed(
    client: SplitClient,
    batches: Iterable[tuple[Tensor, Tensor]],
    address: HubAddress,
    credentials: Credentials,
    away_s: float = 60.0,
) -> list[float]:
    """A step for each batch, over a link that is made again when it breaks.

    Args:
      address: of a `KeyedServer`.
      credentials: the secret, and the file of this client's key.
      away_s: so long the server may be gone.

    Returns: this client's losses.
    Raises: PeerLost where the server does not come back; what `client.start` and `client.handle` raise.
    """
    losses = []
    with _opened(credentials) as links:
        link = _called(links, address, away_s)
        for x, y in batches:
            message = client.start(x, y)
            links.send(link, message)
            while not client.is_done:
                for which, what in links.next(_LOOK_S):
                    if which != link or isinstance(what, bytes):  # its key
                        continue
                    if isinstance(what, str):
                        log.warning("the link to the server has ended: %s", what)
                        link = _called(links, address, away_s)
                        links.send(link, message)
                    elif (answer := client.handle(what)) is not None:
                        links.send(link, answer)
            losses.append(client.loss)
    return losses


@contextmanager
def _opened(credentials: Credentials) -> Iterator[_core.HubLinks]:
    links = opened(credentials, MOST_BYTES)
    try:
        yield links
    finally:
        links.close()


def _called(links: _core.HubLinks, address: HubAddress, away_s: float) -> int:
    """A link to the server, which is called until it answers."""
    until, pause_s = time.monotonic() + away_s, _FIRST_PAUSE_S
    while True:
        try:
            return links.call(address.place, address.key)
        except PeerLost:
            if time.monotonic() + pause_s > until:
                raise
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _MOST_PAUSE_S)
