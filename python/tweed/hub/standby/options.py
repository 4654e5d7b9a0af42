"""What may be replicated and where, and what a hub that is started again asks the standby that it had."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch.optim import Optimizer

from tweed import _core
from tweed.errors import PeerLost, StrategyError, UsageError
from tweed.hub.standby.machine import Divergence, replicable
from tweed.hub.standby.replication import superseded
from tweed.links.address import HubAddress
from tweed.links.client import ask
from tweed.strategy import Strategy


def check_standby(strategy: Strategy, listen: str, follows: bool) -> None:
    """Raises StrategyError for what cannot have a standby, and UsageError for an address where a standby
    cannot be reached.

    Args:
      follows: this process is to be the standby.
    """
    if not replicable(strategy.aggregate):
        raise StrategyError(
            f"{strategy.aggregate!r} may depend on values that only the hub has, and a standby has only the "
            "log of commits: serve it without a standby, or take a rule that is a sum, as Mean or Weighted"
        )
    if follows and listen.rpartition(":")[0] in ("0.0.0.0", "[::]", "::"):
        raise UsageError(
            f"listen={listen!r}: members are given the address at which a standby listens; say one of this "
            "machine's by which they reach it"
        )


def bound(most: float, optimizer: Optimizer) -> Callable[[], Divergence] | None:
    """Makes the bound on how far the hub may be ahead of its standby; None: there is none.

    Raises: UsageError for an optimizer of which the norm of a step is not known beforehand.
    """
    if most == math.inf:
        return None
    group = optimizer.param_groups[0]
    plain = isinstance(optimizer, torch.optim.SGD) and len(optimizer.param_groups) == 1
    if not plain or group["nesterov"] or group["weight_decay"] or group["dampening"]:
        raise UsageError(
            f"divergence={most:g} bounds the steps of SGD with one group of parameters, with momentum or "
            "without, and no other option: take that, or leave divergence out"
        )
    return lambda: Divergence(most, group["lr"], group["momentum"])


def ask_standby(links: _core.HubLinks, record: Path) -> None:
    """A hub with this key had a standby when its process ended. That takes over now, if it can: it has all
    commits, of which a checkpoint lacks some.

    Args:
      record: file with the standby's address.

    Raises:
      Superseded: the standby is the hub.
      UsageError: it does not answer.
    """
    address = HubAddress.parse(record.read_text())
    try:
        answer, _ = ask(links, links.call(address.place, address.key), {"ask": "restarted"})
    except (PeerLost, UsageError) as error:
        raise UsageError(
            f"this hub had a standby at {address}, which may have taken over, and does not answer: {error}. "
            f"Start this hub when it does; if it is gone for good, and nobody trains with it, delete {record}"
        ) from None
    if answer.get("serves") is not None:
        raise superseded(str(address), links.key)
    record.unlink(missing_ok=True)
