"""A hub's side of its standby: who is one, what it gets, and when the hub must not commit.

    standby                                    hub
    {"ask": "replica", ...}             ->                      over a link of a listed key
                                        <-     {"replica": ...} or why not
                                        <-     ROSTER           who is who; members hear STANDBY
    AGREED                              ->
                                        <-     STATE            when no contribution waits for a commit
                                        <-     LOG              each commit, as it is made
    HELD, LACKS                         ->

A hub names its standby between two commits: what counted before is in the state that is sent, and all that
counts later its members keep, as they have heard of the standby before the outcome. When entries wait for a
copy whose member is gone, the standby asks for the state again.

`Guard` (`hub/standby/succession`) decides whether the hub may commit; a file beside the hub's key says that
there is a standby, so that a hub that is started again asks before it serves.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tweed import _core
from tweed.errors import Superseded
from tweed.files import write_atomic
from tweed.hub.machine.actions import Step
from tweed.hub.machine.grants import CopiesFirst, counted_before
from tweed.hub.machine.hub import Hub
from tweed.hub.standby.succession import Guard, GuardState
from tweed.hub.wire import control
from tweed.hub.wire.control import Kind
from tweed.hub.wire.messages import Entry

log = logging.getLogger("tweed")
#: So many commits are kept for a standby whose link breaks; one that lacks more gets the state again.
_MOST_ENTRIES = 4096


def superseded(other: str, key: str) -> Superseded:
    """The error of a hub whose standby, at "KEY@host:port", is the hub now.

    Args:
      key: of the one that raises it.
    """
    return Superseded(
        f"the standby at {other} has taken over, and this hub must not go on beside it. Start it as the "
        f'standby of that: tweed.serve(..., replica_of="{other}"), or tweed serve TASK --replica-of {other}; '
        f"the other one has to list its key: replicas=[{key!r}], or --replica-key {key}"
    )


class Members(Protocol):
    """What it needs of the hub's links to members."""

    numbers: dict[str, int]

    def announce(self, member: int | None, head: bytes, body: bytes | None = None) -> None:
        """To one, or to all that are there."""


@dataclass(frozen=True, slots=True)
class Side:
    """The hub, as far as its standby goes.

    Attributes:
      hub: its machine.
      members: its links.
      snapshot: all that another process needs to go on from here, as bytes.
      divergence: makes the bound that copies are granted by; None: there is none.
    """

    hub: Hub
    members: Members
    snapshot: Callable[[], bytes]
    divergence: Callable[[], CopiesFirst] | None


class Replication:
    """See above.

    Args:
      sockets: the hub's.
      keys: of those that may be its standby.
      record: file that says that there is one; None: this hub cannot be started again under its key.

    Attributes:
      guard: see `succession`.
      generation: how many standbys have taken over before this hub.
      link: to the standby; None: there is none now.
      log_bytes, state_bytes: that went to standbys.
    """

    def __init__(self, sockets: _core.HubLinks, keys: set[str], record: Path | None) -> None:
        self.guard, self.generation, self.keys = Guard(), 0, keys
        self.link: int | None = None
        self.log_bytes = self.state_bytes = 0
        self._sockets, self._record = sockets, record
        self._side: Side | None = None
        self._key = self._address = ""
        self._to_name = self._lacks = False
        self._expelled: list[str] = []
        self._known = (0, 0)  # members and expelled ones that the standby knows
        self._entries: deque[Entry] = deque(maxlen=_MOST_ENTRIES)
        self._sent_version = 0

    def begin(self, side: Side) -> None:
        """The hub is there."""
        self._side = side

    # What the standby says

    def asked(self, link: int, key: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """A process with this key wants to be the standby. Returns the answer. Raises Superseded if it says
        that it is the hub."""
        if key not in self.keys:
            return {"refused": f"this hub does not list the key {key} as its standby"}
        if int(asked.get("generation", 0)) > self.generation:
            self.guard.standby_serves()
            raise superseded(f"{key}@{asked.get('listen')}", self._sockets.key)
        if self.guard.state in (GuardState.GUARDED, GuardState.PAUSED) and key != self._key:
            return {"refused": f"this hub has a standby already, {self._address}"}
        if not asked.get("appointment"):  # a new process: what it was before is gone
            self.guard.standby_left()
        elif self._back(link, asked):
            return {"replica": "it goes on"}
        self.link, self._key, self._address = link, key, f"{key}@{asked.get('listen')}"
        self._to_name = True
        return {"replica": "it will be named"}

    def _back(self, link: int, asked: Mapping[str, Any]) -> bool:
        """It has called again. Whether it goes on where it was."""
        if asked["appointment"] != self.guard.appointment:
            return False
        if (electorate := self.guard.standby_back()) is None:
            return False
        self.link, self._sent_version = link, int(asked.get("version", 0))
        self._send_roster((electorate, frozenset()), whole=True)
        return True

    def heard(self, data: bytearray) -> None:
        """A message of the standby. Raises DataError for what is none."""
        message = control.read(data)
        if message.kind is Kind.AGREED:
            self.guard.agreed()
        elif message.kind is Kind.LACKS:
            self._lacks = True
        elif message.kind is Kind.HELD and self._hub.grants.copies is not None:
            self._hub.grants.copies.held([(int(message.values[0]), message.number)])
        elif message.kind is Kind.FAREWELL:
            self.guard.standby_left()
            self._no_more()

    def ended(self, why: str) -> None:
        """Its link has ended."""
        log.warning("the link to the standby at %s has ended: %s", self._address, why)
        self.link, self._to_name, self._hub.grants.copies = None, False, None
        self.guard.standby_lost()
        if self.guard.state is GuardState.PAUSED:
            log.warning("commits wait until half of the members have let the standby go, or it is back")
            self.side.members.announce(None, control.head(Kind.RENOUNCE, self.guard.appointment))
        else:
            self._no_more()

    # What happens at the hub

    def joined(self, member: int) -> None:
        """Its link is there; whatever outcome it hears of comes later."""
        self.guard.present.add(member)
        if self.guard.state is GuardState.GUARDED:
            self._name(member)
        elif self.guard.appointment:
            self.side.members.announce(member, control.head(Kind.RENOUNCE, self.guard.appointment))

    def left(self, member: int) -> None:
        """Its link has ended."""
        self.guard.present.discard(member)

    def renounced(self, member: int, appointment: int) -> None:
        """A member has let the standby go; if that is back, it is to know it again."""
        before = self.guard.state
        self.guard.renounced(member, appointment)
        if self.guard.state is GuardState.GUARDED:
            self._name(member)
        elif before is GuardState.PAUSED and self.guard.may_commit:
            log.warning("the standby at %s is let go; commits go on", self._address)
            self._no_more()

    def expelled(self, key: str) -> None:
        """The standby is to know, too."""
        self._expelled.append(key)

    def committed(self, step: Step) -> None:
        """The hub's model is that of the next version."""
        if self.guard.state is GuardState.GUARDED:
            self._entries.append(Entry(step.version, step.units))

    def rest(self) -> None:
        """All that has come is done: what the standby is to have goes there."""
        if self.link is None or self._sockets.unsent(self.link):
            return
        between = not self._hub.standby_state()["units"]
        if self._to_name and between:
            self._appoint()
        self._send_change()
        behind = bool(self._entries) and self._entries[0].version > self._sent_version + 1
        if self._lacks or behind:
            if between:
                self._send_state()
        elif entries := [one for one in self._entries if one.version > self._sent_version]:
            self._send_log(entries)

    def finish(self, version: int) -> None:
        """Training has ended with this version; the standby is to have it, and then goes."""
        if self.link is not None:
            self.rest()
            self._sockets.send(self.link, control.head(Kind.FINISHED, version))

    def forget(self) -> None:
        """Training has ended: nothing speaks against starting anew."""
        if self._record is not None:
            self._record.unlink(missing_ok=True)

    @property
    def side(self) -> Side:
        """The side of the hub."""
        assert self._side is not None  # it has begun
        return self._side

    @property
    def _hub(self) -> Hub:
        return self.side.hub

    def _appoint(self) -> None:
        self._to_name = False
        electorate = self.guard.appoint()
        if self._record is not None:
            write_atomic(self._record, self._address)
        self._entries.clear()
        self._send_roster((electorate, frozenset()), whole=True)
        self._name(None)
        self._hub.grants.copies = None if self.side.divergence is None else self.side.divergence()
        self._lacks = True
        log.info("%s is the standby now", self._address)

    def _name(self, member: int | None) -> None:
        text = self._address.encode()
        head = control.head(Kind.STANDBY, self.guard.appointment, numbytes=len(text))
        self.side.members.announce(member, head, text)

    def _no_more(self) -> None:
        """There is no standby, and none will take over."""
        self._entries.clear()
        self.forget()

    def _send_change(self) -> None:
        change = self.guard.change()
        if change is not None or self._known != (len(self.side.members.numbers), len(self._expelled)):
            self._send_roster(change, whole=False)

    def _send_roster(self, change: tuple[frozenset[int], frozenset[int]] | None, whole: bool) -> None:
        """Who is who, and who has come and who has gone; None: nobody."""
        members, expelled = (0, 0) if whole else self._known
        numbers = list(self.side.members.numbers.items())
        said: dict[str, Any] = {
            "whole": whole,
            "generation": self.generation,
            "numbers": dict(numbers[members:]),
            "expelled": self._expelled[expelled:],
        }
        if change is not None:
            said |= {"joined": sorted(change[0]), "left": sorted(change[1])}
        self._known = len(numbers), len(self._expelled)
        self.log_bytes += self._send(Kind.ROSTER, self.guard.appointment, json.dumps(said).encode())

    def _send_log(self, entries: list[Entry]) -> None:
        self.log_bytes += self._send(Kind.LOG, 0, control.log_of(entries))
        self._sent_version = entries[-1].version

    def _send_state(self) -> None:
        """All that the hub has: instead of the entries up to here."""
        self.state_bytes += self._send(Kind.STATE, self.guard.appointment, self.side.snapshot())
        self._lacks, self._sent_version = False, self._hub.version
        if self._hub.grants.copies is not None:
            self._hub.grants.copies.held(counted_before(self._hub.standby_state()["last"]))

    def _send(self, kind: Kind, number: int, body: bytes) -> int:
        """Returns how many bytes that are."""
        assert self.link is not None  # the standby is there
        head = control.head(kind, number, numbytes=len(body))
        self._sockets.send(self.link, head, body)
        return len(head) + len(body)
