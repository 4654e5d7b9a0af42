"""The context of a process that has no group, and trains as a member of a hub."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from tweed.composition import Rule, check
from tweed.errors import PeerLost, StrategyError
from tweed.exchange.communicator import Stats
from tweed.exchange.context import Ungrouped
from tweed.exchange.owners import Owners
from tweed.hooks.settings import Connect
from tweed.hub.aggregator.link import AggregatorLink
from tweed.hub.keyed.member_link import MemberLink
from tweed.hub.links.base import HubLink
from tweed.links.address import Credentials, HubAddress
from tweed.links.client import opened
from tweed.strategy import Strategy

_ALONE = (
    Rule(
        (),
        lambda s: s.hub is None,
        "has no hub, and its ranks need a group: give collective=Hub(0), or the name of a strategy that has "
        "one, such as teasq",
    ),
    Rule(
        ("transport",),
        lambda s: s.transport is not None,
        "is one of a process group, and members of a hub that has none have one TCP stream each: leave it "
        "out, or make a group",
    ),
)


@dataclass(slots=True)
class WorkerContext(Ungrouped):
    """The context of a worker without a group. It takes the model with its first task.

    Args:
      stats, owners: as of `Ungrouped`.
      link: to the hub.
    """

    link: HubLink


def at_hub(
    strategy: Strategy, hub: str, key_file: str | None, aggregator: bool | str
) -> Connect[WorkerContext]:
    """Calls the hub at "KEY@host:port", and may listen as an aggregator. Raises StrategyError for a strategy
    that needs a group, or has no aggregators."""
    check_alone(strategy)
    if aggregator and strategy.hub is not None and not strategy.hub.aggregators:
        raise StrategyError(
            f"aggregator={aggregator!r}: {strategy.hub!r} has no aggregators, so nobody would send there; "
            "give Hub(aggregators=n), or leave it out"
        )
    address = HubAddress.parse(hub)

    def connect(terms: list[str], stats: Stats) -> WorkerContext:
        links = opened(Credentials.of(key_file))
        if aggregator:
            listen = own_address(address.place) if aggregator is True else aggregator
            link: MemberLink = AggregatorLink(address, links, terms, listen)
        else:
            link = MemberLink(address, links, terms)
        link.call()
        # Worker n of these is rank n + 1, as the hub is rank 0.
        owners = Owners(link.worker + 1, max(link.worker, link.workers) + 1, strategy.aggregate, server=0)
        return WorkerContext(stats, owners, link)

    return connect


def own_address(place: str) -> str:
    """The address by which this machine reaches "host:port", and a port that is free. Nothing is sent. Raises
    PeerLost if there is no way."""
    host, _, port = place.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)
        with socket.socket(found[0][0], socket.SOCK_DGRAM) as probe:
            probe.connect(found[0][4])
            own = probe.getsockname()[0]
    except OSError as error:
        raise PeerLost(f"there is no way to the hub at {place}: {error}") from None
    return f"[{own}]:0" if ":" in own else f"{own}:0"


def check_alone(strategy: Strategy) -> None:
    """Raises StrategyError for a strategy that does not say how to train without a group."""
    check(strategy, _ALONE)
