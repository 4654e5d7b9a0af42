"""A process that decides who is a member, and has no part in training: so all but one may be lost at once.

What it has promised is in a file before it says so, and outlives it: started again with that file it is the
same witness. Without it, it is another life of its key, which votes when an epoch names it. So does another
witness in its place: members call that one first, and then the witnesses agree on it. A witness is for one
run.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tweed import _core
from tweed.elastic.control import MOST_BYTES
from tweed.elastic.linked import Linked, later_life, settings
from tweed.elastic.messages import Candidate, Hello, Life, packed, read
from tweed.errors import DataError, DeadlineExceeded, PeerLost, UsageError
from tweed.exchange.hub.links.calling import opened
from tweed.exchange.hub.wire.address import Credentials
from tweed.files import write_atomic

_CALLED_S = 30.0
_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class Replaces:
    """The place that a new witness takes in a run that goes on.

    Attributes:
      key: of the witness that is replaced, whether it lives or not; "KEY@host:port" will do.
      of: "host:port" of members or other witnesses of that run, with commas between; tried in turn.
    """

    key: str
    of: str


class Witness:
    """See the module.

    Args:
      listen: "host:port" that members call; only loopback without TWEED_SECRET or TWEED_SECRET_FILE.
      state: the file; beside it, with ".key" at the end, is the witness's key.
      testbed: the namespace that it listens in, of a testbed.
      replaces: in whose place it wants to be; None: it is one of those that a run begins with. What is in the
        file comes first: a witness that has its place goes on.

    Attributes:
      address: "KEY@host:port", for `Elastic(witnesses=[...])`.

    Raises:
      DataError: the file is no witness's with this key.
      OSError: it cannot be written.
      PeerLost: nobody of the run answers.
      DeadlineExceeded: no member has called this witness within 30 s.
    """

    def __init__(
        self, listen: str, state: Path, testbed: str | None = None, replaces: Replaces | None = None
    ) -> None:
        links = opened(Credentials.of(f"{state}.key"), MOST_BYTES)
        try:
            place = links.listen(listen, testbed)
            self.address, self._state = f"{links.key}@{place}", state
            self._of = links.key if replaces is None else replaces.key.partition("@")[0].lower()
            node, early = self._node(links.key, place, []), list[Any]()
            if replaces is not None and links.key not in _witnesses(node):
                early = _called(links, place, replaces.of)
                callers = [what.hex() for _, what in early if isinstance(what, bytes)]
                node = self._node(links.key, place, callers)
            self._linked = Linked(links, node, {}, self._heard, store=self._store)
            for link, what in early:
                self._linked.handle(link, what)
        except BaseException:
            links.close()
            raise

    @property
    def epoch(self) -> int:
        """The number of the last one that it knows; 0: none."""
        return self._linked.node.epoch_number()

    @property
    def standing(self) -> str:
        """ "settled": it votes, "joining": it wants to, or "evicted": another one has its place."""
        return self._linked.node.standing()[0]

    @property
    def is_called(self) -> bool:
        """A member is linked to it."""
        return len(self._linked) > 0

    def turn(self) -> None:
        """Goes on for 10 ms at most.

        Raises:
          OSError: what it promises cannot be stored; it is not said.
          UsageError: the one that it is to replace is no witness of the run.
        """
        if self.epoch and self.standing == "joining":
            self._check()  # first: who asks for a place may be given it when this process has ended
        self._linked.turn()

    def close(self) -> None:
        """Ends its links."""
        self._linked.links.close()

    def _check(self) -> None:
        """Its place is there."""
        key, known = self._linked.links.key, _witnesses(self._linked.node)
        if self._of not in (key, *known) and key not in known:
            raise UsageError(
                f"{self._of} is no witness of this run, whose epoch {self.epoch} has "
                f"{' and '.join(known) or 'none'}: say which of them is to be replaced"
            )

    def _heard(self, key: str, what: bytearray) -> None:
        said = read(what)
        if isinstance(said, Hello):
            self._linked.say(key, packed(Life(self._linked.node.incarnation(), self.epoch)))
        elif isinstance(said, Candidate):
            for other in self._linked:
                self._linked.say(other, packed(said))

    def _store(self, record: bytes) -> None:
        write_atomic(self._state, record)

    def _node(self, key: str, place: str, contacts: list[str]) -> _core.MemberNode:
        record = self._state.read_bytes() if self._state.exists() else None
        me, seat = (key, later_life()), (self._of, place)
        node = _core.MemberNode.witness(me, record, seat, contacts, settings(1, 1))
        if node is None:
            raise DataError(
                f"{self._state} is not what the witness with the key in {self._state}.key has stored: give "
                "it the file that goes with that key, or start another witness, with another --state"
            )
        return node


def _witnesses(node: _core.MemberNode) -> list[str]:
    """Keys of those of the last epoch that it knows."""
    epoch = node.epoch()
    return [] if epoch is None else [key for key, _, _ in epoch[2]]


def _called(links: _core.HubLinks, place: str, of: str) -> list[Any]:
    """Tells one of the run where this witness is called, until a member has called it. Returns what has
    happened on its links. Members must be able to call who votes: so it asks for its place over their calls
    alone."""
    asking = opened(Credentials.of(None).anonymous)
    try:
        link = _first(asking, of)
        until, again = time.monotonic() + _CALLED_S, 0.0
        events: list[Any] = []
        while not any(isinstance(what, bytes) for _, what in events):
            if (now := time.monotonic()) > until:
                raise DeadlineExceeded(
                    f"no member has called this witness at {place} within {_CALLED_S:g} s: it must listen "
                    "where they reach it"
                )
            if now >= again:
                again = now + _AGAIN_S
                asking.send(link, packed(Candidate(links.key, place)))
            if any(isinstance(what, str) for _, what in asking.next(0.0)):
                raise PeerLost(f"the link to {of} has ended: say with --of who else is of that run")
            events += links.next(0.1)
        return events
    finally:
        asking.close()


def _first(links: _core.HubLinks, addresses: str) -> int:
    """A link to the first of these that answers."""
    reasons = []
    for address in filter(None, (one.strip() for one in addresses.split(","))):
        key, _, place = address.rpartition("@")
        try:
            return links.call(place, key or None)
        except PeerLost as error:
            reasons.append(str(error))
    raise PeerLost(f"nobody of the run is reached. {'; '.join(reasons) or 'No address was given'}")
