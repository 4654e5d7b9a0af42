"""A member that is an aggregator, live: its link to the hub, with a thread for what it does for others.

    the member's own thread                  the thread "tweed-aggregator"
    send(message)           -- said -->      what the hub or a named member is to get
    replicate(worker)       -- unsafe -->    what the standby is to get, beside sums
    receive()               <- told ----     messages of the hub, and of members that are a way
                                             Gather, Void, Lend, sums; callers; the newest model: `Service`

All links and machines are the thread's, so nothing is locked: the two sides hand over whole messages. It
works while the member computes, and ends when `close` is called, or the process does. What was said before
the other side knew of a new link to the hub is not sent over that: the member's machine says it again. And
until it knows, it keeps all that it has for a standby, which may be the hub by then.
"""

from __future__ import annotations

import atexit
import queue
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from tweed import _core
from tweed.errors import UsageError
from tweed.hub.aggregator.service import Service
from tweed.hub.keyed.member_link import Came, MemberLink, Seen
from tweed.hub.machine.worker import Worker
from tweed.hub.wire import bodies
from tweed.hub.wire.form import ContributionForm
from tweed.hub.wire.messages import (
    CancelGroup,
    EagerOffer,
    FromWorker,
    Gather,
    ModelGrant,
    Offer,
    Payload,
    Sum,
    Task,
)
from tweed.links.address import HubAddress

#: So many members may have a link to an aggregator at a time.
_MOST_CALLERS = 1024
#: So long the thread may take to say that this member leaves, besides copies that leave before.
_LEAVE_S = 15.0
#: In the place of a link's place while there is none.
_NO_LINK = -1
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
        self.place = links.listen(listen)
        self._service = Service(links, links.key, self._decoded)
        self._ways.made = self._service.left  # which may have taken it for a caller's
        # What is said, and over the how manieth link to the hub.
        self._said: queue.SimpleQueue[tuple[int, FromWorker | EagerOffer]] = queue.SimpleQueue()
        # A bool: there is a new link; whether it is to another hub.
        self._told: queue.SimpleQueue[Came | bool | BaseException] = queue.SimpleQueue()
        self._known_links = self._made_links = 0
        self._shown = 0, Seen()  # over the how manieth link, and what there was of a standby
        self._unsafe: Sequence[tuple[Task, Offer, Tensor]] = ()
        self._sums: deque[Sum] = deque()  # which wait until the standby has their copies
        self._forms: dict[int, ContributionForm] = {}
        self._closing, self._turned, self._breaks = (threading.Event() for _ in range(3))
        self._thread = threading.Thread(target=self._work, name="tweed-aggregator", daemon=True)

    # The member's own thread

    def call(self) -> None:
        """Then the thread begins."""
        super().call()
        self._show()
        atexit.register(self.close)
        self._thread.start()

    def send(self, message: FromWorker | EagerOffer) -> None:
        if not self._called:
            self.call()
        self._said.put((self._known_links, message))
        self._links.wake()

    def receive(self) -> Came | None:
        came = self._told.get()
        if isinstance(came, BaseException):
            self._told.put(came)  # it is so from now on
            raise came
        if not isinstance(came, bool):
            return came
        # All of them: a call that was broken off may have taken one that it has not counted.
        self._known_links, self.renewed = self._made_links, came
        return None

    @property
    def keeps(self) -> bool:
        seen = self._seen()
        return seen is None or seen.known

    def flush(self) -> None:
        """Nothing: the thread sends on."""

    def break_off(self) -> None:
        if self._thread.is_alive():
            self._breaks.set()
            self._links.wake()
        else:  # it was called when this came
            self._called = False
            super().break_off()

    def close(self) -> None:
        """Says what there is to say, and waits for the thread."""
        atexit.unregister(self.close)
        if self._thread.is_alive():
            self._closing.set()
            self._links.wake()
            self._thread.join(_LEAVE_S)
        super().close()

    def _seen(self) -> Seen | None:
        links, seen = self._shown
        return seen if links == self._known_links else None

    def _copy(self, worker: Worker) -> None:
        self._unsafe = worker.unsafe()
        self._links.wake()

    def _look(self, patience_s: float) -> None:
        self._turned.clear()
        self._turned.wait(patience_s)

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
        if self._breaks.is_set():
            self._breaks.clear()
            super().break_off()
        self._obey()
        self._standby.send(self._unsafe)
        self._service.passed(time.monotonic())
        self._send_sums()
        self._show()
        while self._came:
            self._told.put(self._came.popleft())
        if self._linked:
            self._wait(max(0.0, self._service.deadline() - time.monotonic()))
        self._show()
        self._turned.set()
        if not self._linked and not self._came and not self._closing.is_set():
            self._service.unlinked()
            self._sums.clear()
            self._unsafe = ()
            self._shown = _NO_LINK, Seen()
            renewed = self._again()
            self._made_links += 1
            self._show()
            self._told.put(renewed)

    def _show(self) -> None:
        """To the member's own thread, before it is told what came later."""
        standby = self._standby
        self._shown = self._made_links, Seen(standby.known, standby.safe, standby.ready)

    def _send_sums(self) -> None:
        """Sums go to the hub and to its standby; to that first, where the hub has said so."""
        while (found := self._service.poll()) is not None:
            if self._standby.known:
                self._standby.add(found)
            self._sums.append(found)
        while self._sums and not (self._sums[0].copy_first and self._waits_for_copy(self._sums[0])):
            self._send(self._sums.popleft())

    def _waits_for_copy(self, found: Sum) -> bool:
        return self._standby.ready and self._standby.had_sum < found.group

    def _obey(self) -> None:
        while True:
            try:
                links, message = self._said.get_nowait()
            except queue.Empty:
                return
            if links == self._made_links:
                self._say(message)

    def _say(self, message: FromWorker | EagerOffer) -> None:
        if isinstance(message, Payload) and message.via == self.worker:
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

    def _serve(self, message: Gather | CancelGroup | ModelGrant, body: Tensor) -> None:
        data, now = body.numpy().tobytes(), time.monotonic()
        if isinstance(message, Gather):
            self._service.gather(message, bodies.read_parts(data), now)
        elif isinstance(message, CancelGroup):
            self._service.cancel_group(message, now)
        else:
            self._service.grant_model(message, data.decode(errors="replace"))

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

    def _go_on(self) -> None:
        if self._closing.is_set():
            raise _Closing

    def _decoded(self, worker: int, data: Tensor, number: int) -> Tensor:
        """What a payload stands for; forms are kept, as they are large for some codecs."""
        if worker not in self._forms:
            self._forms[worker] = self.forms(worker)
        return self._forms[worker].decode(data, number)


class _Closing(Exception):
    """The member leaves while it calls its hub."""
