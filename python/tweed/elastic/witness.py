"""A process that decides who is a member, and has no part in training: so all but one may be lost at once.

What it has promised is in a file before it says so, and outlives it: started again with that file it is the
same witness. Without it, it is another life of its key, which votes when an epoch names it. So does another
witness in its place: members call that one first, and then the witnesses agree on it. A witness is for one
run.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tweed import _core
from tweed.elastic.member_links import MemberLinks, later_life, settings
from tweed.elastic.messages import MOST_BYTES, Candidate, Hello, Life, packed, read
from tweed.elastic.witness_search import WitnessElection
from tweed.errors import DataError, UsageError
from tweed.files import write_atomic
from tweed.links.address import Credentials
from tweed.links.client import opened


@dataclass(frozen=True, slots=True)
class Replaces:
    """The place that a new witness takes in a run that goes on.

    Attributes:
      key: of the witness that is replaced, whether it lives or not; "KEY@host:port" will do.
      of: "host:port" of members or other witnesses of that run, with commas between. One will do, while it
        lives: it says where the other members are.
    """

    key: str
    of: str


class Witness:
    """See the module.

    Args:
      listen: "host:port" that members call; only loopback without TWEED_SECRET or TWEED_SECRET_FILE.
      state: the file; beside it, with ".key" at the end, is the witness's key.
      replaces: in whose place it wants to be; None: it is one of those that a run begins with. A witness
        whose file is of a run already goes on as that one, and asks for no other place.

    Attributes:
      address: "KEY@host:port", for `Elastic(witnesses=[...])`.
      resumed: the epoch in its file, of which it is a witness; 0: it is new.
      called_at: "host:port" at which members call it, by that epoch: they call no other address.

    Raises:
      DataError: the file is no witness's with this key.
      UsageError: the file is of a witness that was replaced, which takes no place any more.
      OSError: it cannot be written.
    """

    def __init__(self, listen: str, state: Path, replaces: Replaces | None = None) -> None:
        links = opened(Credentials.of(f"{state}.key"), MOST_BYTES)
        try:
            address = links.listen(listen, "witness")
            self.address, self._state = f"{links.key}@{address}", state
            self._of = links.key if replaces is None else replaces.key.partition("@")[0].lower()
            node = self._node(links.key, address)
            self.called_at = _witnesses(node).get(links.key, "")
            self.resumed = node.epoch_number() if self.called_at else 0
            self._election: WitnessElection | None = None
            if replaces is not None and not self.resumed:
                self._check_unused(node)
                self._election = WitnessElection(links.key, address, replaces.of)
            self._member_links = MemberLinks(links, node, {}, self._heard, store=self._store)
        except BaseException:
            links.close()
            raise

    @property
    def epoch(self) -> int:
        """The number of the last one that it knows; 0: none."""
        return self._member_links.node.epoch_number()

    @property
    def standing(self) -> str:
        """ "settled": it votes, "joining": it wants to, or "evicted": another one has its place."""
        return self._member_links.node.standing()[0]

    @property
    def is_called(self) -> bool:
        """A member is linked to it."""
        return len(self._member_links) > 0

    def turn(self) -> None:
        """Goes on for 10 ms at most. Logs what keeps it from a place that it asks for.

        Raises:
          OSError: what it promises cannot be stored; it is not said.
          UsageError: the one that it is to replace is no witness of the run; or the run has another secret.
        """
        if self.epoch and self.standing == "joining":
            self._check_place()  # first: who asks for one may be given it when this process has ended
        self._member_links.turn()
        if self._election is not None:
            self._election.turn(calls=self.is_called)
            if self.epoch and self.standing != "joining":
                self._end_election()

    def close(self) -> None:
        """Ends the links of this witness."""
        self._end_election()
        self._member_links.links.close()

    def _end_election(self) -> None:
        if self._election is not None:
            self._election.close()
            self._election = None

    def _check_place(self) -> None:
        """Raises UsageError if this witness can take no place of the run, or not the one that it asks for."""
        key, known = self._member_links.links.key, _witnesses(self._member_links.node)
        if key in known and _life(self._member_links.node, key) > self._member_links.node.incarnation():
            raise UsageError(
                f"members know a later life of this witness and never let it in: {self._state} was lost, and "
                "the clock of this host has gone back. Set the clock, and start it again; or start another "
                f"witness, with another --state, and --replaces {key} --of an address of the run"
            )
        if self._of not in (key, *known) and key not in known:
            raise UsageError(
                f"{self._of} is not a witness of this run, whose epoch {self.epoch} has the witnesses "
                f"{' and '.join(known) or '(none)'}: say which of them is to be replaced"
            )

    def _check_unused(self, node: _core.MemberNode) -> None:
        if number := node.epoch_number():
            raise UsageError(
                f"{self._state} belongs to a witness whose place another witness has in epoch {number} of "
                "the run: to take a place again, give another file by --state"
            )

    def _heard(self, key: str, what: bytearray) -> None:
        said = read(what)
        if isinstance(said, Hello):
            self._member_links.say(key, packed(Life(self._member_links.node.incarnation(), self.epoch)))
            if self._election is not None:
                self._election.learn(said.address)
        elif isinstance(said, Candidate):
            for other in self._member_links:
                self._member_links.say(other, packed(said))

    def _store(self, record: bytes) -> None:
        write_atomic(self._state, record)

    def _node(self, key: str, address: str) -> _core.MemberNode:
        record = self._state.read_bytes() if self._state.exists() else None
        me, slot = (key, later_life()), (self._of, address)
        node = _core.MemberNode.witness(me, record, slot, settings(1, 1))
        if node is None:
            raise DataError(
                f"{self._state} is not what the witness with the key in {self._state}.key has stored: give "
                "it the file that goes with that key, or start another witness, with another --state"
            )
        return node


def _witnesses(node: _core.MemberNode) -> dict[str, str]:
    """The witnesses of the last epoch that it knows: by key, where members call it."""
    epoch = node.epoch()
    return {} if epoch is None else {key: address for key, _, address in epoch[2]}


def _life(node: _core.MemberNode, key: str) -> int:
    """The life of a witness that the last epoch has; 0: it has none."""
    epoch = node.epoch()
    return 0 if epoch is None else next((life for one, life, _ in epoch[2] if one == key), 0)
