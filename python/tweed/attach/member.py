"""The place of a process that has no group, and trains as a member of a hub."""

from __future__ import annotations

from tweed.attach.settings import FindPlace
from tweed.errors import StrategyError
from tweed.exchange.communicator import Stats
from tweed.exchange.hub.address import Credentials, HubAddress
from tweed.exchange.hub.member_link import MemberLink
from tweed.exchange.owners import Owners
from tweed.exchange.place import Alone, Place
from tweed.strategy import Strategy


def at_hub(strategy: Strategy, hub: str, key_file: str | None) -> FindPlace:
    """Calls the hub at "KEY@host:port". Raises StrategyError for a strategy that needs a group."""
    check_alone(strategy)
    address = HubAddress.parse(hub)

    def found(terms: list[str], stats: Stats) -> Place:
        link = MemberLink(address, Credentials.of(key_file), terms)
        # Worker n of these is rank n + 1, as the hub is rank 0.
        owners = Owners(link.worker + 1, max(link.worker, link.workers) + 1, strategy.aggregate, server=0)
        return Alone(stats, owners, link=link)

    return found


def check_alone(strategy: Strategy) -> None:
    """Raises StrategyError for a strategy that does not say how to train without a group."""
    if strategy.hub is None:
        raise StrategyError(
            f"{strategy!r} has no hub, and its ranks need a group: give collective=Hub(0), or the name of "
            "a strategy that has one, such as teasq"
        )
    if strategy.transport is not None:
        raise StrategyError(
            f"transport={strategy.transport!r} is one of a process group, and members of a hub that has none "
            "have one TCP stream each: leave it out, or make a group"
        )
