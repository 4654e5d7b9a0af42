"""A member that is an aggregator, live: its link to the hub, with a thread for what it does for others.

    the member's own thread                  the thread "tweed-aggregator"
    send(message)           -- said -->      what the hub or a named member is to get
    receive()               <- came ---      messages of the hub, and of members that are a way
                                             Gather, Void, Lend, sums; callers; the newest model: `Service`

All links and machines are the thread's, so nothing is locked: the two sides hand over whole messages. It
works while the member computes, and ends when `close` is called, or the process does.
"""

from __future__ import annotations

import atexit
import os
import queue
import threading
import time
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from tweed import _core
from tweed.errors import UsageError
from tweed.exchange.hub import bodies
from tweed.exchange.hub.address import HubAddress
from tweed.exchange.hub.form import ContributionForm
from tweed.exchange.hub.member_link import Came, MemberLink
from tweed.exchange.hub.messages import FromWorker, Gather, Lend, Payload, Task, Void
from tweed.exchange.hub.service import Service

#: So many members may have a link to an aggregator at a time.
_MOST_CALLERS = 1024
#: So long the thread may take to say that this member leaves.
_LEAVE_S = 15.0
_ANYWHERE = ("0.0.0.0", "[::]", "")


class AggregatorLink(MemberLink):
    """A `HubLink` whose member adds up what others send, and hands on models, if the hub asks for it.

    Args:
      address, links, terms, away_s, returns: as of `MemberLink`.
      listen: "host:port" where members call; they and the hub are told just that. Port 0 is one that is free.

    Raises: UsageError if that cannot be had, is open to strangers, or is no place where one can be called.
    """

    def __init__(
        self,
        address: HubAddress,
        links: _core.HubLinks,
        terms: Sequence[str],
        listen: str,
        away_s: float = 600.0,
        returns: bool = True,
    ) -> None:
        super().__init__(address, links, terms, away_s, returns)
        if listen.rpartition(":")[0] in _ANYWHERE:
            raise UsageError(
                f"an aggregator at {listen!r} cannot be called: give the address by which other members "
                "reach this one, such as 192.0.2.7:7071"
            )
        links.admit(None, _MOST_CALLERS)
        self.place = links.listen(listen, os.environ.get("TWEED_TESTBED"))
        self._service = Service(links, links.key, self._decoded)
        self._said: queue.SimpleQueue[FromWorker] = queue.SimpleQueue()
        self._told: queue.SimpleQueue[Came | BaseException | None] = queue.SimpleQueue()
        self._forms: dict[int, ContributionForm] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="tweed-aggregator", daemon=True)

    # The member's own thread

    def call(self) -> None:
        """See `MemberLink`; then the thread begins."""
        super().call()
        atexit.register(self.close)
        self._thread.start()

    def send(self, message: FromWorker) -> None:
        """See `HubLink`."""
        if not self._link:
            self.call()
        self._said.put(message)
        self._links.wake()

    def receive(self) -> Came | None:
        """See `HubLink`."""
        came = self._told.get()
        if isinstance(came, BaseException):
            self._told.put(came)  # it is so from now on
            raise came
        return came

    def flush(self) -> None:
        """Nothing: the thread sends on."""

    def close(self) -> None:
        """See `HubLink`. Says what there is to say, and waits for the thread."""
        atexit.unregister(self.close)
        if self._thread.is_alive():
            self._closing.set()
            self._links.wake()
            self._thread.join(_LEAVE_S)
        super().close()

    # The thread

    def _work(self) -> None:
        try:
            while not self._closing.is_set():
                self._turn()
            self._obey()
            super().flush()
        except _Closing:
            pass
        except BaseException as error:  # noqa: BLE001 - raised by `receive`
            self._told.put(error)
        finally:
            super().close()

    def _turn(self) -> None:
        """Does what there is to do, then waits for something to happen."""
        self._obey()
        self._service.passed(time.monotonic())
        while (found := self._service.poll()) is not None:
            super().send(found)
        while self._came:
            self._told.put(self._came.popleft())
        patience_s = min(3600.0, max(0.0, self._service.deadline() - time.monotonic()))
        if not self._stands(patience_s) and not self._closing.is_set():
            self._service.unlinked()
            self._again()
            self._told.put(None)

    def _obey(self) -> None:
        while True:
            try:
                message = self._said.get_nowait()
            except queue.Empty:
                return
            own = isinstance(message, Payload) and message.via == self.worker
            if own and isinstance(message, Payload):
                self._service.sent_by_itself(message, time.monotonic())
            else:
                super().send(message)

    def _take(self, head: Sequence[float], body: Tensor) -> None:
        super()._take(head, body)
        if not self._came or self._came[-1][1] is not body:
            return  # it was not for the worker
        message, _ = self._came[-1]
        if isinstance(message, Task) and message.via is None:
            self._service.holds(message.version, body)

    def _serve(self, message: Gather | Void | Lend, body: Tensor) -> None:
        data, now = body.numpy().tobytes(), time.monotonic()
        if isinstance(message, Gather):
            self._service.gather(message, bodies.read_parts(data), now)
        elif isinstance(message, Void):
            self._service.void(message, now)
        else:
            self._service.lend(message, data.decode(errors="replace"))

    def _other(self, link: int, what: bytes | bytearray | str) -> None:
        if self._ways.owns(link):
            super()._other(link, what)
        elif isinstance(what, bytes):
            self._service.joined(link, what.hex())
        elif isinstance(what, str):
            self._service.left(link)
        else:
            self._service.heard(link, what, time.monotonic())

    def _greeting(self) -> dict[str, Any]:
        return {**super()._greeting(), "aggregator": self.place}

    def _pause(self, seconds: float) -> None:
        if self._closing.wait(seconds):
            raise _Closing

    def _decoded(self, worker: int, data: Tensor, number: int) -> Tensor:
        """What a payload stands for; forms are kept, as they are large for some codecs."""
        if worker not in self._forms:
            self._forms[worker] = self.forms(worker)
        return self._forms[worker].decode(data, number)


class _Closing(Exception):
    """The member leaves while it calls its hub."""
