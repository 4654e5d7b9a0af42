"""Links between a hub and its workers where all are ranks of one process group.

They are messages of the group; or, where ranks add up for each other, sealed streams beside it.
"""

from __future__ import annotations

from functools import partial

from tweed.collective.hub import Hub
from tweed.exchange.communicator import Communicator
from tweed.exchange.values import gather
from tweed.hub.aggregator.sealed_ranks import SealedRanks, sealed_link
from tweed.hub.links.base import HubLink, MemberLinks
from tweed.hub.links.rank_links import RankLink, RankLinks


def link_to_hub(comm: Communicator, hub: Hub) -> HubLink:
    """The link of a worker to the rank of `hub`. All ranks of the group call this, or `links_to_workers`.

    Raises: PeerLost if a rank is lost meanwhile.
    Cost: with aggregators an all-gather of addresses; else nothing is sent.
    """
    if hub.aggregators:
        return sealed_link(partial(gather, comm.group), hub.rank)
    return RankLink(comm.group, comm.wait, hub.rank)


def links_to_workers(comm: Communicator, hub: Hub) -> MemberLinks:
    """The links of this rank, which is the hub, to all others: the other end of `link_to_hub`."""
    if hub.aggregators:
        return SealedRanks(partial(gather, comm.group), comm.rank)
    return RankLinks(comm.group, comm.wait, comm.rank, comm.size)
