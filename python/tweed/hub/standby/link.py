"""A member's link to the standby of its hub: copies of what was counted, and of sums, go there.

The hub names the standby, with the key that it has to have. It is called on a thread, so that training does
not wait for it. Over the link go at most `WINDOW` copies that the standby has not applied, the oldest first;
the others wait with the member. A sum goes when it is formed; if it never counts, it is thrown away there. Of
sums that do not leave in time the oldest are forgotten, and the standby asks the hub for its state. When the
hub is lost, the member's promise goes there: see `succession`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence

from torch import Tensor

from tweed import _core
from tweed.errors import DataError, UsageError
from tweed.hub.standby.succession import Voter
from tweed.hub.wire import control
from tweed.hub.wire.control import Kind
from tweed.hub.wire.head import HEAD
from tweed.hub.wire.messages import Offer, Sum, Task
from tweed.links import hello
from tweed.links.address import HubAddress
from tweed.links.dialer import Dialer

log = logging.getLogger("tweed")
#: Copies that a member may have sent and the standby has not applied.
WINDOW = 16
#: While sums wait for one that leaves, it is looked for its end so often.
_LOOK_S = 0.02


class StandbyLink:
    """See above.

    Args:
      links: of this process.

    Attributes:
      voter: what this member has promised.
      safe: all up to this number that counted is in the standby's model.
      had: number of the last copy that is there; `had_sum`: group of the last sum.
      serves: the standby is the hub.
    """

    def __init__(self, links: _core.HubLinks) -> None:
        self._links, self.voter = links, Voter()
        self.safe = self.had = self.had_sum = 0
        self.serves = False
        self._dialer: Dialer | None = None
        self._link: int | None = None
        self._in = False
        self._sent: list[int] = []
        self._sums: deque[Sum] = deque(maxlen=WINDOW)

    @property
    def known(self) -> bool:
        """Whether there is a standby."""
        return self._dialer is not None

    @property
    def ready(self) -> bool:
        """Whether copies can go there."""
        return self._in

    @property
    def address(self) -> HubAddress:
        """The address of the standby."""
        assert self._dialer is not None  # it is known
        return self._dialer.address

    def is_at(self, link: int) -> bool:
        """Whether that is the link to it."""
        return link == self._link

    def named(self, appointment: int, text: str) -> None:
        """The hub names a standby: of this address. Raises UsageError for what is none."""
        address = HubAddress.parse(text)
        if self._dialer is None or address != self.address:
            self.forget()
            self._dialer = Dialer(self._links, address)
        if appointment != self.voter.appointment:
            self.safe = self.had = self.had_sum = 0
        self.voter.named(appointment)

    def renounce(self, appointment: int) -> bool:
        """The hub asks for it: see `Voter`."""
        agreed = self.voter.renounce(appointment)
        if agreed and not self.voter.appointment:
            self.forget()
        return agreed

    def forget(self) -> None:
        """There is no standby."""
        if self._link is not None:
            self._links.cut(self._link, "the hub has another standby, or none")
        self._dialer, self._link, self._in, self.serves = None, None, False, False
        self._sent = []
        self._sums.clear()

    def take(self) -> int | None:
        """The link, which is that to the hub from now on; None: it has ended meanwhile."""
        link, self._link, self.voter = self._link, None, Voter()
        self.forget()
        return link

    def turn(self, now: float) -> float:
        """Calls, if there is no link, and sends sums. Returns for how many seconds there is nothing to do."""
        if self._dialer is None or self._link is not None:
            return _LOOK_S if self._send_sums() else 3600.0
        try:
            self._link = self._dialer.poll(now)
        except UsageError as error:
            log.warning("the hub has a standby that does not let this member in: %s", error)
        if self._link is None:
            return self._dialer.wait_s(now)
        self._links.allow(self._link, HEAD.size + hello.MOST_BYTES)
        self._links.send(self._link, hello.packed({"copies": self.voter.appointment}))
        return 3600.0

    def heard(self, what: bytes | bytearray | str) -> None:
        """What has happened on the link."""
        try:
            if isinstance(what, str):
                self._ended(what)
            elif isinstance(what, bytearray) and self._in:
                self._message(control.read(what))
            elif isinstance(what, bytearray):
                self._answer(hello.read(what))
        except DataError as error:
            assert self._link is not None  # something has come
            self._links.cut(self._link, str(error))
            self._ended(str(error))

    def promise(self) -> None:
        """The hub is lost. The standby hears it, as soon as there is a link."""
        if self._in and not self.voter.promised and self.voter.promise():
            self._say(Kind.LOST, self.voter.appointment)

    def send(self, kept: Sequence[tuple[Task, Offer, Tensor]]) -> None:
        """Copies of what it may lack, as far as they may go and the ones before have left."""
        self._sent = [number for number in self._sent if number > self.safe]
        for task, offer, value in kept:
            if not self._in or self._link is None or len(self._sent) >= WINDOW:
                return
            if task.number in self._sent:
                continue
            if self._links.unsent(self._link):
                return
            body = bytes(value.numpy())
            self._links.send(self._link, control.copy_head(task.version, offer, len(body)), body)
            self._sent.append(task.number)

    def add(self, found: Sum) -> None:
        """A sum that goes to the hub; `turn` sends its copy, when those before have left."""
        self._sums.append(found)

    def _send_sums(self) -> bool:
        """Whether there are more, which wait."""
        while self._sums and self._in and self._link is not None and not self._links.unsent(self._link):
            self._links.send(self._link, *control.sum_message(self._sums.popleft()))
        return self._in and bool(self._sums)

    def flushed(self) -> bool:
        """Whether all copies that have been sent have left."""
        return self._link is None or not self._links.unsent(self._link)

    def close(self) -> None:
        """After the links were closed."""
        if self._dialer is not None:
            self._dialer.close()

    def _say(self, kind: Kind, number: int) -> None:
        assert self._link is not None  # the standby has this member in
        self._links.send(self._link, control.head(kind, number))

    def _ended(self, why: str) -> None:
        log.info("the link to the standby has ended: %s", why)
        self._link, self._in, self._sent = None, False, []

    def _answer(self, answer: dict[str, object]) -> None:
        if "serves" in answer:
            self._serves()
        elif "member" not in answer:
            raise DataError(f"the standby does not take copies: {answer.get('refused')}")
        else:
            self._in = True
            if self.voter.promised:
                self._say(Kind.LOST, self.voter.appointment)

    def _message(self, message: control.Control) -> None:
        if message.kind is Kind.KEPT:
            self.safe = max(self.safe, message.number)
        elif message.kind is Kind.HAVE:
            self.had = max(self.had, message.number)
        elif message.kind is Kind.HAVE_SUM:
            self.had_sum = max(self.had_sum, message.number)
        elif message.kind is Kind.RELEASED:
            self.voter.released()
        elif message.kind is Kind.SERVES:
            self._serves()

    def _serves(self) -> None:
        self.serves = True
        self.voter.released()
