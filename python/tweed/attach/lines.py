"""The process group that a strategy's transport and collective ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

import torch.distributed as dist

from tweed.attach.residual import Delivery
from tweed.strategy import Strategy
from tweed.torch import Options
from tweed.transport import Ltp


class Lossy(Protocol):
    """What the engine's group offers where contributions may lose parts."""

    def keep_whole(self, address: int, bytes: int) -> None:
        """That memory of this rank never loses parts."""

    def take_deliveries(self) -> Sequence[Delivery]:
        """How operations since the last call were delivered, oldest first."""


def wants_own(strategy: Strategy) -> bool:
    """Whether the strategy needs a group with settings of its own."""
    return strategy.transport is not None or strategy.collective is not None


def own_group(strategy: Strategy, group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    """A group of backend "tweed" over the ranks of `group`, with the strategy's transport and server.

    All else is as the environment says, as for `tweed.torch.Options`. All ranks of `group` must call it.
    """
    options = Options(
        transport=cast(Ltp | None, strategy.transport),
        server=None if strategy.collective is None else strategy.collective.rank,
    )
    ranks = dist.get_process_group_ranks(group)
    everybody = len(ranks) == dist.get_world_size()
    made = dist.new_group(ranks, backend="tweed", pg_options=options, use_local_synchronization=not everybody)
    assert isinstance(made, dist.ProcessGroup)  # this process is one of its members
    return made


def lossy(group: dist.ProcessGroup | None) -> Lossy:
    """The engine's side of a group that `own_group` made."""
    from tweed.torch.groups import engine_group

    return cast(Lossy, engine_group(group))
