"""The context of a rank of a process group."""

from __future__ import annotations

import torch.distributed as dist
from torch import nn

from tweed.exchange.communicator import Communicator, Stats
from tweed.exchange.values import gather
from tweed.hooks import checks
from tweed.hooks.settings import Connect
from tweed.strategy import Strategy


def in_group(strategy: Strategy, model: nn.Module, group: dist.ProcessGroup | None) -> Connect[Communicator]:
    """Meets the other ranks of `group`. Raises UsageError if this process is not in it."""
    checks.check_group(group)

    def connect(terms: list[str], stats: Stats) -> Communicator:
        # First: of what all have alike, the checks that follow raise the same at all ranks.
        checks.check_agreement(gather(group, terms))
        checks.check_place(strategy, model, dist.get_world_size(group))
        return Communicator(group, strategy, stats)

    return connect
