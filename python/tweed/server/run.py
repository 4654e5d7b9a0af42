"""`HubRun`: the run of a hub that has no group, and its members."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.optim import Optimizer

from tweed import _core
from tweed.attach.member import check_alone
from tweed.attach.run import Run
from tweed.attach.settings import Settings
from tweed.exchange.communicator import Stats
from tweed.exchange.hub.address import Credentials
from tweed.exchange.hub.keyed_links import KeyedLinks
from tweed.exchange.owners import Owners
from tweed.exchange.place import Alone, Place
from tweed.strategy import Strategy


@dataclass(frozen=True, slots=True)
class Listening:
    """Where and how a hub is reached; see `tweed.serve`."""

    listen: str
    key_file: str | None
    members: Sequence[str] | None
    most: int | None
    fewest: int
    job: Mapping[str, Any] | None


class HubRun(Run):
    """What `tweed.serve` returns. See there, and `Run`.

    Attributes:
      address: "KEY@host:port", for members.
    """

    def __init__(
        self, model: nn.Module, optimizer: Optimizer, strategy: Strategy, listening: Listening
    ) -> None:
        check_alone(strategy)
        credentials = Credentials.of(listening.key_file)
        self._sockets = _core.HubLinks(
            secret=credentials.secret, secret_file=credentials.secret_file, key_file=credentials.key_file
        )
        self._most = listening.most
        self._sockets.admit(listening.members, listening.most)
        where = ""

        def found(terms: list[str], stats: Stats) -> Place:
            nonlocal where
            owners = Owners(0, listening.fewest + 1, strategy.aggregate, server=0)
            self._members = KeyedLinks(self._sockets, terms, listening.job, listening.fewest)
            where = self._sockets.listen(listening.listen, os.environ.get("TWEED_TESTBED"))
            return Alone(stats, owners, links=self._members)

        super().__init__(model, optimizer, strategy, found, Settings())
        self.address = f"{self._sockets.key}@{where}"

    @property
    def members(self) -> dict[int, str]:
        """The keys of those that are there, by the number under which verdicts name them."""
        keys = {number: key for key, number in self._members.numbers.items()}
        return {member: keys[member] for member in self._members.members}

    @property
    def known(self) -> int:
        """How many members ever came."""
        return len(self._members.numbers)

    def admit(self, members: Sequence[str] | None) -> None:
        """From now on those with these keys alone may come; None: whoever has the secret. Others are cut off.

        Raises: UsageError for what is no key.
        """
        self._sockets.admit(members, self._most)
        listed = None if members is None else {key.lower() for key in members}
        self._members.forget(lambda key: listed is not None and key not in listed)

    def expel(self, key: str) -> None:
        """Cuts the member with this key off, for as long as this process lives. Raises as `admit`."""
        self._sockets.expel(key)
        self._members.forget(lambda other: other == key.lower())

    @property
    def refused(self) -> dict[str, int]:
        """How many callers were turned away, by reason."""
        return self._sockets.refused()
