"""`replay`: the run of a hub again, from the log of what its machine was given."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.optim import Optimizer

from tweed.hooks import checks
from tweed.hub.live.event_log import LoggedEvents
from tweed.hub.live.replaying import Commit, Replaying
from tweed.strategy import Strategy


@dataclass(frozen=True, slots=True)
class Replay:
    """What was replayed.

    Attributes:
      commits: by version. What was committed, and lost when the hub went on from an older checkpoint, is not
        among them.
      checked: how many of them had the bits that the log says the model had; the last one is not known to it
        if the hub was killed before it had stepped.
      processes: that have served, one after the other.
      events: that the machine was given.
      unfinished_bytes: at the end of the log, of a record that was being written.
      state: of the hub's exchange at the end, as in a checkpoint.
    """

    commits: tuple[Commit, ...]
    checked: int
    processes: int
    events: int
    unfinished_bytes: int
    state: Mapping[str, Any]


def replay(
    path: str | os.PathLike[str],
    model: nn.Module,
    optimizer: Optimizer,
    strategy: Strategy,
    *,
    commits: int | None = None,
    after: Callable[[int], None] = lambda version: None,
) -> Replay:
    """Walks a hub's machine over the log that `run.serve(log=path)` has kept: the same commits, and the same
    bits of the model and of the optimizer's state.

        model, optimizer = as_at_the_hub()
        found = tweed.server.replay("hub.log", model, optimizer, strategy)

    No contribution is computed again, and nothing is asked of trusted samples: the log has what came. Values
    that models and optimizers have before do not matter; their form does.

    Args:
      path: of the log. It may be that of a hub that was killed, or is still running.
      model, optimizer: of the hub's form, not attached; afterwards they are as the hub's were.
      strategy: the hub's.
      commits: only up to the model of this version.
      after: called after each commit, as that of `run.serve`: what that has changed there, such as a learning
        rate, has to be changed again.

    Raises:
      UsageError: the file is no log or one of another format, or of another model.
      StrategyError: it is of another strategy; the text names both.
      DataError: the log is missing or damaged; names the place.
      TweedError: a commit came to other bits than the log says; names the commit, and what may be the reason.

    Cost: that of the hub's steps and rules, and of reading the log.
    """
    checks.check_model(model, [optimizer])

    def step() -> None:
        optimizer.step()
        optimizer.zero_grad()

    log = LoggedEvents(path)
    walk = Replaying(model, optimizer, strategy, log, step)
    for version in walk.versions():
        after(version)
        if commits is not None and version >= commits:
            break
    found = tuple(walk.commits.values())
    return Replay(found, walk.checked, walk.processes, walk.events, log.unfinished_bytes, walk.state())
