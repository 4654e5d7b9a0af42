"""`HubRun`: the run of a hub that has no group, and its members."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from tweed import metrics
from tweed.errors import UsageError
from tweed.exchange.communicator import Stats
from tweed.exchange.context import Ungrouped
from tweed.exchange.owners import Owners
from tweed.hooks.settings import Settings
from tweed.hooks.setup import Setup
from tweed.hub.connect import check_alone
from tweed.hub.keyed.eager import eager_bytes
from tweed.hub.keyed.hub_links import KeyedLinks
from tweed.hub.live.hub import HubServer
from tweed.hub.live.trusted import TrustedLoss
from tweed.hub.metrics import MetricsSource
from tweed.hub.run import HubServerRun
from tweed.hub.snapshot import Site
from tweed.hub.standby.options import ask_standby, bound, check_standby
from tweed.hub.standby.replication import Replication, Side
from tweed.hub.standby_run import Following
from tweed.links.address import Credentials, HubAddress
from tweed.links.client import opened
from tweed.strategy import Strategy
from tweed.torch.options import Options


@dataclass(frozen=True, slots=True)
class Listening:
    """Where and how a hub is reached; see `tweed.serve`."""

    listen: str
    key_file: str | None
    members: Sequence[str] | None
    most: int | None
    fewest: int
    job: Mapping[str, Any] | None
    replicas: Sequence[str] = ()
    replica_of: str | None = None
    divergence: float = math.inf


class HubRun(HubServerRun):
    """What `tweed.serve` returns. See there, and `Run`.

    Attributes:
      address: "KEY@host:port", for members.
      replication: what went to standbys, in bytes: `log_bytes` and `state_bytes`.
    """

    def __init__(
        self, model: nn.Module, optimizer: Optimizer, strategy: Strategy, listening: Listening
    ) -> None:
        check_alone(strategy)
        _check_members(listening)
        follows = listening.replica_of is not None
        if follows or listening.replicas:
            check_standby(strategy, listening.listen, follows)
        divergence = bound(listening.divergence, optimizer)
        options = Options.resolve(None).metrics_options()
        credentials = Credentials.of(listening.key_file)
        self._sockets = opened(credentials)
        record = Path(f"{credentials.key_file}.replica") if credentials.key_file else None
        if not follows and record is not None and record.exists():
            try:
                ask_standby(self._sockets, record)
            except BaseException:
                self._sockets.close()  # and lets go of the key file
                raise
        self.replication = Replication(self._sockets, {key.lower() for key in listening.replicas}, record)
        self._hub = None if listening.replica_of is None else HubAddress.parse(listening.replica_of)
        self._listening = listening
        self._following: Following | None = None
        where = ""

        def connect(terms: list[str], stats: Stats) -> Ungrouped:
            nonlocal where
            owners = Owners(0, listening.fewest + 1, strategy.aggregate, server=0)
            self._members = KeyedLinks(
                self._sockets, terms, listening.job, listening.fewest, self.replication
            )
            self._members.eager.most_bytes = eager_bytes(strategy)
            self.admit(listening.members)
            where = self._sockets.listen(listening.listen)
            return Ungrouped(stats, owners)

        setup = Setup(model, optimizer, strategy, connect, Settings())
        server = HubServer(setup.params, setup.context, strategy, self._members)
        super().__init__(setup, server)
        self._alone = MetricsSource()
        metrics.publish(self._alone, options, fewest=1)
        self.address = f"{self._sockets.key}@{where}"
        site = Site(model, optimizer, server, where, setup.terms)
        self.replication.begin(Side(server.hub, self._members, site.snapshot, divergence))
        server.committed = self.replication.committed
        if self._hub is not None:
            self._follow(self._hub, site)

    def _follow(self, hub: HubAddress, site: Site) -> None:
        try:
            self._following = Following(self._sockets, hub, site, self._members, self.replication)
        except BaseException:
            self.detach()
            raise
        self.replication.forget()

    def serve(
        self,
        steps: int = 1,
        trusted: TrustedLoss | None = None,
        commits: int | None = None,
        after: Callable[[int], None] = lambda version: None,
        log: str | os.PathLike[str] | None = None,
    ) -> None:
        """See `Run.serve`. A standby first follows its hub: it calls `after` for each commit that it applies,
        and serves when the hub is gone; it returns when the hub has ended training.

        Raises: Superseded if the standby of this hub has taken over; UsageError for a log at a standby, which
          could not be replayed: what a standby counts first its hub was told.
        """
        if self._following is not None and log is not None:
            raise UsageError(f"serve: log={str(log)!r}: a standby keeps none; name one at its hub")
        if self._following is None or self._following.follow(self._optimizers.step, after):
            super().serve(steps, trusted, commits, after, log)

    def detach(self) -> None:
        """Lets nobody come in any more."""
        self._alone.close()
        super().detach()
        if self._following is not None:
            self._following.close()

    @property
    def members(self) -> dict[int, str]:
        """The keys of those that are there, by the number under which verdicts name them."""
        keys = self.keys
        return {member: keys[member] for member in self._members.members}

    @property
    def keys(self) -> Mapping[int, str]:
        """The keys of all that ever came, likewise."""
        return self._members.keys

    @property
    def known(self) -> int:
        """How many members ever came."""
        return len(self._members.numbers)

    def admit(self, members: Sequence[str] | None) -> None:
        """From now on those with these keys alone may come; None: whoever has the secret. Others are cut off.

        Raises: UsageError for what is no key.
        """
        given = self._listening
        others = [*given.replicas, *([self._hub.key] if self._hub is not None and self._hub.key else [])]
        most = None if given.most is None else given.most + len(others)
        self._sockets.admit(None if members is None else [*members, *others], most)
        listed = None if members is None else {key.lower() for key in members}
        self._members.barred = lambda key: listed is not None and key not in listed
        self._members.forget(self._members.barred)

    def expel(self, key: str) -> None:
        """Cuts the member with this key off, for as long as this process lives. Raises as `admit`."""
        self._sockets.expel(key)
        self.replication.expelled(key.lower())
        self._members.forget(lambda other: other == key.lower())

    @property
    def refused(self) -> Mapping[str, int]:
        """How many callers were turned away, by reason."""
        return self._members.refused


def _check_members(given: Listening) -> None:
    """Raises UsageError where nobody, or too few, could ever come."""
    if isinstance(given.members, str):
        raise UsageError(f"serve: members={given.members!r}: give a list of keys, one for each member")
    if given.fewest < 1 or (given.most is not None and given.most < given.fewest):
        raise UsageError(
            f"serve: fewest={given.fewest}, most={given.most}: training begins with `fewest` members, at "
            "least one, so `most` may not be less"
        )
