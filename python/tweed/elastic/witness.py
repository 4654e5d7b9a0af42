"""A process that decides who is a member, and has no part in training: so all but one may be lost at once.

What it has promised is in a file before it says so, and outlives it: started again with that file it is the
same witness. Without it, it is another life of its key, which votes when an epoch names it. A witness is for
one run.
"""

from __future__ import annotations

from pathlib import Path

from tweed import _core
from tweed.elastic.control import MOST_BYTES
from tweed.elastic.linked import Linked, later_life, settings
from tweed.elastic.messages import Hello, Life, packed, read
from tweed.errors import DataError
from tweed.exchange.hub.links.calling import opened
from tweed.exchange.hub.wire.address import Credentials
from tweed.files import write_atomic


class Witness:
    """See the module.

    Args:
      listen: "host:port" that members call; only loopback without TWEED_SECRET or TWEED_SECRET_FILE.
      state: the file; beside it, with ".key" at the end, is the witness's key.
      testbed: the namespace that it listens in, of a testbed.

    Attributes:
      address: "KEY@host:port", for `Elastic(witnesses=[...])`.

    Raises:
      DataError: the file is no witness's with this key.
      OSError: it cannot be written.
    """

    def __init__(self, listen: str, state: Path, testbed: str | None = None) -> None:
        links = opened(Credentials.of(f"{state}.key"), MOST_BYTES)
        try:
            place = links.listen(listen, testbed)
            self.address = f"{links.key}@{place}"
            self._linked = Linked(links, _node(links.key, state), {}, self._heard, store=self._store)
            self._state = state
        except BaseException:
            links.close()
            raise

    @property
    def epoch(self) -> int:
        """The number of the last one that it knows; 0: none."""
        return self._linked.node.epoch_number()

    @property
    def is_called(self) -> bool:
        """A member is linked to it."""
        return len(self._linked) > 0

    def turn(self) -> None:
        """Goes on for 10 ms at most. Raises: OSError if what it promises cannot be stored; it is not said."""
        self._linked.turn()

    def close(self) -> None:
        """Ends its links."""
        self._linked.links.close()

    def _heard(self, key: str, what: bytearray) -> None:
        if isinstance(read(what), Hello):
            self._linked.say(key, packed(Life(self._linked.node.incarnation(), self.epoch)))

    def _store(self, record: bytes) -> None:
        write_atomic(self._state, record)


def _node(key: str, state: Path) -> _core.MemberNode:
    record = state.read_bytes() if state.exists() else None
    node = _core.MemberNode.witness((key, later_life()), record, settings(1, 1))
    if node is None:
        raise DataError(
            f"{state} is not what the witness with the key in {state}.key has stored: give it the file that "
            "goes with that key, or start another witness, with another --state"
        )
    return node
