"""Links between all members, and who is in: a thread drives a `MemberNode` in ticks of 10 ms."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition, Thread
from typing import Any

from tweed import _core
from tweed.errors import DataError, DeadlineExceeded, PeerLost, UsageError
from tweed.exchange.hub.address import Credentials
from tweed.exchange.hub.calling import opened

log = logging.getLogger("tweed")

_TICK_S = 0.01
#: So many ticks are made up for after a pause of this process: else it would take the others for silent.
_MOST_BEHIND = 5
#: In ticks, see `Settings` in crates/proto/src/members: a beat each 0.1 s, silence for 1 s is a loss.
_TIMES = {"beat": 10, "silence": 100, "batch": 50, "stagger": 5, "penalty": 500, "lead_steps": 2}
#: No message between members is longer: an epoch of 1024 members twice.
_MOST_BYTES = 1 << 18
#: Begins what is not for the node: where the group of an epoch meets.
_MEETING = b"\xff"


@dataclass(frozen=True, slots=True)
class Elastic:
    """How many members there may be, and how they reach each other.

    Args:
      min_members: fewer wait for others.
      max_members: more are not let in.
      host: the address that this process is reached at; only loopback without a secret.
        All members have the same TWEED_SECRET, or TWEED_SECRET_FILE: see docs/security.md.
      key_file: keeps this process's permanent id; None: TWEED_KEY_FILE, or another one each time.

    Raises: UsageError if there is no such number of members.
    """

    min_members: int
    max_members: int
    host: str = "127.0.0.1"
    key_file: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.min_members <= self.max_members:
            raise UsageError(
                f"Elastic({self.min_members}, {self.max_members}): give 1 <= least <= most members"
            )


@dataclass(frozen=True, slots=True)
class Epoch:
    """Who is a member: keys in the order of their ranks."""

    number: int
    members: tuple[str, ...]


@dataclass(frozen=True, order=True, slots=True)
class Meeting:
    """Where the group of an epoch meets; of several the last one counts."""

    epoch: int
    attempt: int
    port: int
    host: str

    def message(self) -> bytes:
        """As it crosses."""
        return _MEETING + json.dumps([self.epoch, self.attempt, self.port, self.host]).encode()

    @classmethod
    def read(cls, data: bytes | bytearray) -> Meeting:
        """The inverse. Raises DataError for what is no such message."""
        try:
            epoch, attempt, port, host = json.loads(data[len(_MEETING) :])
        except (ValueError, TypeError, RecursionError) as error:
            raise DataError(f"what came is no meeting of members: {error}") from None
        numbers = all(type(number) is int and number >= 0 for number in (epoch, attempt, port))
        if not (numbers and port < 1 << 16 and isinstance(host, str)):
            raise DataError("what came is no meeting of members: its parts are of other kinds")
        return cls(epoch, attempt, port, host)


class Control:
    """One process among the members. See the module; `start` makes it.

    Args:
      links: to the others.
      node: of this process.
      early: what has happened on the links already.
      host: of this process.

    Attributes:
      key: of this process.
      host: of this process.
    """

    def __init__(self, links: _core.HubLinks, node: _core.MemberNode, early: list[Any], host: str) -> None:
        self.key, self.host = links.key, host
        self._links, self._node = links, node
        self._link_of: dict[str, int] = {}
        self._key_of: dict[int, str] = {}
        self._meeting = Meeting(0, 0, 0, "")
        self._changed, self._closed = Condition(), False
        for link, what in early:
            self._handle(link, what)
        self._thread = Thread(target=self._drive, name="tweed-members", daemon=True)
        self._thread.start()

    @property
    def epoch(self) -> Epoch:
        """The last one that this process knows."""
        found = self._node.epoch()
        assert found is not None  # a founder has one
        return Epoch(found[0], tuple(key for key, _ in found[1]))

    def step(self, step: int) -> None:
        """This step is the next that is not counted."""
        self._node.step(step)

    def call_meeting(self, meeting: Meeting) -> None:
        """Says where the group of an epoch meets to all members."""
        for key in self.epoch.members:
            if (link := self._link_of.get(key)) is not None:
                self._links.send(link, meeting.message())
        self._note(meeting)

    def wait_for(
        self, condition: Callable[[Epoch, Meeting], bool], timeout_s: float
    ) -> tuple[Epoch, Meeting]:
        """Waits until the last epoch and the last meeting fulfil it.

        Raises:
          PeerLost: the others have gone on without this process; it says what to do.
          DeadlineExceeded: it took too long; says why, if there is no next epoch.
        """
        until, told = time.monotonic() + timeout_s, ""
        with self._changed:
            while True:
                epoch, meeting = self.epoch, self._meeting
                standing, why = self._node.standing()
                if standing in ("evicted", "left"):
                    raise PeerLost(
                        f"the others have gone on without this process, in epoch {epoch.number}: it was not "
                        "heard for a second. Start it again to join them"
                    )
                if condition(epoch, meeting):
                    return epoch, meeting
                if why and why != told:
                    log.warning("waiting for members: %s", why)
                    told = why
                if time.monotonic() >= until:
                    raise DeadlineExceeded(
                        f"no next group of members within {timeout_s:g} s. {why or standing}"
                    )
                self._changed.wait(_TICK_S)

    def close(self) -> None:
        """Ends the links: the others see this process as lost."""
        self._closed = True
        self._thread.join()
        self._links.close()

    def _drive(self) -> None:
        due = time.monotonic() + _TICK_S
        while not self._closed:
            for link, what in self._links.next(max(0.0, due - time.monotonic())):
                self._handle(link, what)
            now = time.monotonic()
            due = max(due, now - _MOST_BEHIND * _TICK_S)
            while due <= now:
                self._node.tick()
                due += _TICK_S
            for key, message in self._node.poll():
                if (to := self._link_of.get(key)) is not None:
                    self._links.send(to, message)
            with self._changed:
                self._changed.notify_all()

    def _handle(self, link: int, what: bytes | bytearray | str) -> None:
        key = self._key_of.get(link)
        if isinstance(what, bytes):
            self._link_of[what.hex()], self._key_of[link] = link, what.hex()
        elif key is None:
            return
        elif isinstance(what, str):
            self._key_of.pop(link)
            if self._link_of.get(key) == link:
                self._link_of.pop(key)
                self._node.lost(key)
        elif what.startswith(_MEETING):
            try:
                self._note(Meeting.read(what))
            except DataError as error:
                log.warning("a member is cut off: %s", error)
                self._links.cut(link, str(error))
        else:
            self._node.receive(key, bytes(what))

    def _note(self, meeting: Meeting) -> None:
        with self._changed:
            self._meeting = max(self._meeting, meeting)


def start(store: Any, rank: int, size: int, elastic: Elastic, timeout_s: float = 60.0) -> Control:
    """Links this process to the other founders, which it finds through torch's store; that may go afterwards.

    Args:
      store: torch's, a `dist.Store`.

    Raises:
      UsageError: there are more founders than there may be members, or fewer than there must be.
      DeadlineExceeded: one of them did not come in time.
    """
    if not elastic.min_members <= size <= elastic.max_members:
        raise UsageError(
            f"{size} members begin, and there may be {elastic.min_members} to {elastic.max_members}: "
            "start another number of them, or change Elastic"
        )
    links = opened(Credentials.of(elastic.key_file), _MOST_BYTES)
    try:
        lives, early = _meet_founders(links, store, rank, size, elastic.host, timeout_s)
    except BaseException:
        links.close()
        raise
    limits = {"min_members": elastic.min_members, "max_members": elastic.max_members, "seed": rank}
    node = _core.MemberNode.founder((links.key, 0), lives, [], _TIMES | limits)
    return Control(links, node, early, elastic.host)


def _meet_founders(
    links: _core.HubLinks, store: Any, rank: int, size: int, host: str, timeout_s: float
) -> tuple[list[tuple[str, int]], list[Any]]:
    """Calls those of lower ranks, and waits for the others. Returns all, and what has happened meanwhile."""
    address = links.listen(f"{host}:0")
    store.set(f"tweed member {rank}", json.dumps([links.key, address]))
    found = [json.loads(store.get(f"tweed member {other}")) for other in range(size)]
    link_of = {key: links.call(at, key) for key, at in found[:rank]}
    early: list[Any] = []  # others may be further, and send already
    until = time.monotonic() + timeout_s
    while len(link_of) < size - 1:
        if time.monotonic() > until:
            missing = [other for other, (key, _) in enumerate(found) if key not in link_of and other != rank]
            raise DeadlineExceeded(f"no link to the members of ranks {missing} within {timeout_s:g} s")
        early += (events := links.next(0.1))
        link_of |= {what.hex(): link for link, what in events if isinstance(what, bytes)}
    return [(key, 0) for key, _ in found], early
