"""A `MemberNode` and its links to other processes: what comes goes in, what is due goes out, in ticks."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping

from tweed import _core
from tweed.elastic.messages import TEXT
from tweed.errors import DataError

log = logging.getLogger("tweed")

TICK_S = 0.01
#: So many ticks are made up for after a pause of this process: else it would take the others for silent.
_MOST_BEHIND = 5
#: In ticks, see `Settings` in crates/proto/src/members: a heartbeat each 0.1 s, silence for 1 s is a loss.
_TIMES = {"heartbeat": 10, "silence": 100, "batch": 50, "stagger": 5, "penalty": 500, "lead_steps": 2}


def settings(min_members: int, max_members: int, seed: int = 0) -> dict[str, int]:
    """The settings of a node that is driven in these ticks."""
    return _TIMES | {"min_members": min_members, "max_members": max_members, "seed": seed}


def later_life() -> int:
    """An incarnation above those before, which may be forgotten: the time tells them apart."""
    return time.time_ns() // 1_000_000


class MemberLinks:
    """See the module. One thread calls `turn`; others may call `say`.

    Args:
      links: to the others.
      node: of this process.
      linked: by number of a link, the key at its other end.
      heard: called with what is not for the node, and from whom; may raise DataError, which cuts the link.
      lost: called with the key of a process to which there is no link any more.
      store: called with what has to be kept before anything else is sent; witnesses have such.
      turned: called when the node may know another epoch, before it says so to others.
    """

    def __init__(
        self,
        links: _core.HubLinks,
        node: _core.MemberNode,
        linked: Mapping[int, str],
        heard: Callable[[str, bytearray], None],
        lost: Callable[[str], None] = lambda key: None,
        store: Callable[[bytes], None] = lambda record: None,
        turned: Callable[[], None] = lambda: None,
    ) -> None:
        self.links, self.node = links, node
        self._key_of = dict(linked)
        self._link_of = {key: link for link, key in linked.items()}
        self._heard, self._lost, self._store, self._turned = heard, lost, store, turned
        self._due = time.monotonic() + TICK_S

    def __len__(self) -> int:
        return len(self._link_of)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._link_of))

    def __contains__(self, key: str) -> bool:
        return key in self._link_of

    def add(self, link: int, key: str) -> None:
        """A link has come about; it takes the place of an earlier one to the same process."""
        self._link_of[key], self._key_of[link] = link, key
        self.node.linked(key)

    def say(self, key: str, message: bytes) -> None:
        """Sends it, if that process is linked."""
        if (link := self._link_of.get(key)) is not None:
            self.links.send(link, message)

    def turn(self, *, ticks: bool = True) -> None:
        """Waits until the next tick, or for something to come; then does what is due.

        Args:
          ticks: time passes for the node.
        """
        for link, what in self.links.next(max(0.0, self._due - time.monotonic())):
            self.handle(link, what)
        now = time.monotonic()
        self._due = max(self._due, now - _MOST_BEHIND * TICK_S)
        while self._due <= now:
            if ticks:
                self.node.tick()
            self._due += TICK_S
        self._turned()
        for key, message in self.node.poll():
            if key:
                self.say(key, message)
            else:
                self._store(message)

    def handle(self, link: int, what: bytes | bytearray | str) -> None:
        """Something has happened on a link."""
        key = self._key_of.get(link)
        if isinstance(what, bytes):
            self.add(link, what.hex())
        elif key is None:
            return
        elif isinstance(what, str):
            self._ended(link, key)
        elif what and what[0] >= TEXT:
            try:
                self._heard(key, what)
            except DataError as error:
                log.warning("a member is cut off: %s", error)
                self.links.cut(link, str(error))
        else:
            self.node.receive(key, bytes(what))
            self._turned()

    def _ended(self, link: int, key: str) -> None:
        self._key_of.pop(link)
        if self._link_of.get(key) == link:
            self._link_of.pop(key)
            self.node.lost(key)
            self._lost(key)
