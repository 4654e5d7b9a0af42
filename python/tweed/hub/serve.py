"""`tweed.serve`: a hub without a group."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tweed.recipes.named import named_strategy
from tweed.strategy import Strategy

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from tweed.hub.process_run import HubRun


def serve(  # noqa: PLR0913 - options of a user, by their names
    model: nn.Module,
    optimizer: Optimizer,
    strategy: Strategy | str,
    *,
    listen: str = "127.0.0.1:0",
    key_file: str | None = None,
    members: Sequence[str] | None = None,
    most: int | None = None,
    fewest: int = 1,
    job: Mapping[str, Any] | None = None,
    replicas: Sequence[str] = (),
    replica_of: str | None = None,
    divergence: float = math.inf,
) -> HubRun:
    """Opens a hub that members reach when they like, by `tweed.attach(..., hub=run.address)`.

        run = tweed.serve(model, torch.optim.SGD(model.parameters(), lr=1.0), "teasq", listen="0.0.0.0:7070")
        print(run.address)          # KEY@0.0.0.0:7070: members need the key, and a name of this machine
        run.serve(commits=1000)

    Members are known by their keys alone: they may come late, leave, and come back, and a contribution counts
    once, however often links break. Links are sealed. The secret is that of the environment (TWEED_SECRET, or
    TWEED_SECRET_FILE); without one the hub listens on loopback alone.

    Args:
      model: the one that is trained; members begin with its parameters.
      optimizer: steps by what contributions come to: any one of torch's.
      strategy: a `Strategy` with a hub, or the name of one.
      listen: "host:port"; port 0 is one that is free.
      key_file: keeps the hub's key, by which members know it, across restarts; it is made if it is not there.
        None: TWEED_KEY_FILE, or a new key.
      members: the keys of those that may come, as they print them; None: whoever has the secret.
      most: so many members at a time; None: any number.
      fewest: no task is handed out before so many are there.
      job: what members that ask are to do (`tweed join`).
      replicas: keys of processes that may be this hub's standby, one at a time; empty: none.
      replica_of: "KEY@host:port" of a hub: this process is its standby, applies what that commits, and is the
        hub when that is gone. It is given the same strategy and `fewest`; `listen` has to be an address by
        which members reach it.
      divergence: the norm by which the hub's model may be ahead of what its standby can have, as far as
        norms tell that beforehand; where a contribution could break it, its copy goes to the standby first.
        Infinite: none does.

    Returns: a `Run` that serves; see `HubRun` for the members, and who may be one.

    Raises:
      UsageError: the address cannot be had, or is open to strangers; or model and optimizer do not belong
        together.
      StrategyError: the strategy has no hub, or names a transport, which only groups have; or there is to be
        a standby, and the strategy's rule is no sum.
      Superseded: this hub, with its `key_file`, had a standby when its process ended, which has taken over.
      PeerLost, ShapeMismatch: the hub that this process is to be the standby of is not there, or trains
        something else.

    Cost: of a standby, at the hub one transfer of the state, and 64 bytes for each contribution; its members
      send each contribution twice, and keep it until the standby has it.
    """
    from tweed.hub.process_run import HubRun, Listening

    chosen = named_strategy(strategy) if isinstance(strategy, str) else strategy
    among = (tuple(replicas), replica_of, divergence)
    return HubRun(model, optimizer, chosen, Listening(listen, key_file, members, most, fewest, job, *among))
