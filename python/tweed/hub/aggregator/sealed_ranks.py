"""Links of a hub whose ranks add up for each other: sealed streams, as members without a group have.

A rank that is an aggregator works while it computes, for ranks that the group's messages have no way to
announce. So these ranks meet through their group once, to learn each other's keys and where the hub listens,
and from then on go by the links of `member_link` and `keyed`. As in any group, who is lost ends it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from tweed import _core
from tweed.errors import PeerLost
from tweed.hub.aggregator.link import AggregatorLink
from tweed.hub.keyed.hub_links import KeyedLinks
from tweed.hub.links.base import Linked, News
from tweed.hub.standby.replication import Replication
from tweed.links.address import Credentials, HubAddress
from tweed.links.client import opened

#: Gathers a text of each rank, by rank.
Gather = Callable[[str], Sequence[str]]
#: Ranks have agreed on their terms before.
_TERMS: tuple[str, ...] = ()


def sealed_link(gather: Gather, hub: int) -> AggregatorLink:
    """A worker's link to the rank `hub`. All ranks of the group must call this, or make a `SealedRanks`."""
    links = _opened()
    said = gather(links.key)
    return AggregatorLink(HubAddress.parse(said[hub]), links, _TERMS, _here(), returns=False)


class SealedRanks(KeyedLinks):
    """A hub's links to the other ranks of its group: `MemberLinks`. A member's number is its rank.

    Args:
      gather: see there.
      hub: this rank.
    """

    def __init__(self, gather: Gather, hub: int) -> None:
        links = _opened()
        place = links.listen(_here())
        said = gather(f"{links.key}@{place}")
        keys = {key: rank for rank, key in enumerate(said) if rank != hub}
        links.admit(list(keys))
        super().__init__(links, _TERMS, None, len(keys), Replication(links, set(), None))
        self.numbers, self._workers = keys, list(keys.values())

    @property
    def over(self) -> bool:
        """Whether all workers have left."""
        return self._done.issuperset(self._workers) and not self.members

    def worker(self, member: int) -> int:
        return self._workers.index(member)

    def next(self, until: float) -> Sequence[News]:
        """Raises PeerLost if a rank is gone that has not left."""
        came = super().next(until)
        for rank, news in came:
            if news is Linked.LEFT:
                raise PeerLost(f"the link of rank {rank} to its hub has ended: start the group anew")
        return came

    def _hang_up(self) -> None:
        """On nobody: that would end the group. A rank's lease ends."""

    def state(self) -> dict[str, Any]:
        """Ranks have their numbers."""
        return {}

    def load(self, state: Any) -> None:
        """Does nothing, as the links of ranks keep no state."""

    def flush(self) -> None:
        """Nothing: who has left waits for nothing."""


def _opened() -> _core.HubLinks:
    return opened(Credentials(os.environ.get("TWEED_SECRET"), os.environ.get("TWEED_SECRET_FILE")))


def _here() -> str:
    """As the engine's own listener: see docs/security.md."""
    return f"{os.environ.get('TWEED_HOST') or '127.0.0.1'}:0"
