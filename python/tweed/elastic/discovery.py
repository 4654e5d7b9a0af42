"""How the processes of a run learn of each other, and call each other: members, joiners and witnesses.

    a process   hears                                               and then
    any         `Hello`, of who has called it                       says who else there is, and introduces it
    any         `Known`, of others that it does not reach           calls them, if they cannot call it
    a member    `Candidate`, of one that wants a witness's place    calls it, until it is linked
    any         an epoch, with its witnesses                        calls those that are not linked

Addresses are under the lock of the `Control` that has it: it holds that in all calls but `turn` and `close`.
Dialers are of the thread that drives the links, which alone calls `dial`, `enter` and `turn`, and ends before
`close`. A `Dialer` calls on a thread of its own, and `turn` takes what has come of it.
"""

from __future__ import annotations

import logging
import time

from tweed.elastic.epoch import Epoch
from tweed.elastic.member_links import MemberLinks
from tweed.elastic.messages import Hello, Known, packed
from tweed.elastic.settings import Elastic
from tweed.errors import PeerLost, UsageError
from tweed.links.address import HubAddress
from tweed.links.dialer import Dialer

log = logging.getLogger("tweed")

#: To who joins.
ALL_GONE = (
    "all members that were called are gone: join others. Or a process with the same key has joined them: "
    "give each its own key file"
)


class Discovery:
    """See the module.

    Args:
      member_links: of this process.
      elastic: what holds for all members.
      addresses: by key of a process, this one included, where it is called; empty: nobody can call it.
    """

    def __init__(self, member_links: MemberLinks, elastic: Elastic, addresses: dict[str, str]) -> None:
        self._member_links, self._elastic, self._addresses = member_links, elastic, addresses
        self._key = member_links.links.key
        self._witnesses = dict[str, Dialer]()  # of the last epoch
        self._calls = dict[str, Dialer]()  # to who is to be called to come in

    def members(self, epoch: Epoch) -> list[str]:
        """Keys of the members that are reached, this process included, in the order of their ranks."""
        return [one for one in epoch.members if one == self._key or one in self._member_links]

    def reached(self) -> list[str]:
        """Keys of those that a joiner is linked to, first those that can be called, which reach the others.

        Members come first among these, but some may be gone, and whoever was called may be a joiner as well.

        Raises: PeerLost if there is none: nobody lets it in.
        """
        linked = [key for key in self._addresses if key in self._member_links]
        if not linked:
            raise PeerLost(ALL_GONE)
        return sorted(linked, key=lambda key: not self._addresses[key])

    def listener(self, epoch: Epoch) -> str:
        """The key of the first member that can be called, of those that all reach if there is such.

        Raises: PeerLost if there is none.
        """
        apart = {key for pair in epoch.cut for key in pair}
        able = [key for key in epoch.members if self._addresses.get(key)]
        if not able:
            raise PeerLost("no member can be called: at least one must listen, without TWEED_DIAL_ONLY")
        return min(able, key=lambda key: key in apart)

    def hello(self, key: str, address: str) -> None:
        """Who has called says where it is called itself: it hears who else there is, and those that cannot be
        called hear of it."""
        self._addresses[key] = address
        self._member_links.say(key, packed(self._known(key)))
        known = packed(Known([[key, address]], -1))
        for other, of in self._addresses.items():
            if address and not of and other not in (key, self._key):
                self._member_links.say(other, known)

    def hear_of(self, others: list[list[str]]) -> None:
        """Calls those that cannot call this process."""
        own = self._addresses[self._key]
        for key, address in others:
            if not own and address and key != self._key and key not in self._member_links:
                self._addresses[key] = address
                self.dial(key, address)

    def dial(self, key: str, address: str) -> None:
        """Calls a process until it is linked; at another address than before, if that is said now."""
        place = HubAddress(address, key)
        if key not in self._calls or self._calls[key].address != place:
            self._calls[key] = Dialer(self._member_links.links, place)

    def lost(self, key: str) -> None:
        """There is no link to this process any more."""
        self._addresses.pop(key, None)

    def enter(self, epoch: Epoch) -> None:
        """A witness may have been replaced. A call to it that is under way ends by itself."""
        found = map(HubAddress, epoch.witness_addresses, epoch.witnesses)
        old, links = {dialer.address: dialer for dialer in self._witnesses.values()}, self._member_links.links
        self._witnesses = {key: old.get(one) or Dialer(links, one) for one in found if (key := one.key)}

    def turn(self) -> None:
        """Calls those that are due, and takes links that have come about."""
        for key, dialer in self._witnesses.items():
            failed = dialer.failed
            if not self._is_linked(key, dialer) and dialer.failed not in ("", failed):
                log.warning("the witness at %s is not reached: %s", dialer.address, dialer.failed)
        for key, dialer in list(self._calls.items()):
            if self._is_linked(key, dialer):
                dialer.close()
                del self._calls[key]
                self._member_links.say(key, packed(Hello(self._addresses[self._key])))

    def close(self) -> None:
        """Waits for calls that are under way, which end as the links are closed."""
        for dialer in (*self._witnesses.values(), *self._calls.values()):
            dialer.close()

    def _is_linked(self, key: str, dialer: Dialer) -> bool:
        """Calls it if need be."""
        if key in self._member_links:
            return True
        try:
            link = dialer.poll(time.monotonic())
        except UsageError:
            link = None  # it refuses this process; `dialer.failed` says why
        if link is not None:
            self._member_links.add(link, key)
        return link is not None

    def _known(self, key: str) -> Known:
        epoch, run = Epoch.of(self._member_links.node.epoch()), self._elastic
        lives = dict(zip(epoch.members, epoch.lives, strict=True))
        members = [*lives, *(other for other in self._addresses if other not in lives)]
        others = [[one, self._addresses[one]] for one in members if one in self._addresses and one != key]
        return Known(others, lives.get(key, -1), run.min_members, run.max_members, run.about)
