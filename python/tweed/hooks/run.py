"""`Run`: what a rank of a group or of a hub has, whatever its role."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from tweed.aggregate import Verdict
from tweed.errors import UsageError
from tweed.hooks.base_run import BaseRun


class Run(BaseRun):
    """What `tweed.attach` and `tweed.serve` return. See there.

    The same program runs on all ranks, so each role answers what another one is asked for: what it does not
    have is empty or does nothing here. The roles that have it override it: `GradientRun` and `ModelRun` in a
    group, `HubServerRun` and `HubWorkerRun` at a hub.
    """

    @property
    def serves(self) -> bool:
        """Whether this rank is the strategy's server: it has no data, and calls `serve` instead of a loop."""
        return not self._context.owners.contributes

    @property
    def over(self) -> bool:
        """At a worker of a hub: the hub has ended training, and the model is its last; steps do not change it
        any more. Elsewhere always False."""
        return False

    def serve(
        self,
        steps: int = 1,
        trusted: Callable[[int], Tensor] | None = None,
        commits: int | None = None,
        after: Callable[[int], None] = lambda version: None,
        log: str | os.PathLike[str] | None = None,
    ) -> None:
        """The server's training loop: takes `steps` steps with what the workers contribute.

        A hub serves until all workers have called `detach`, however many steps that takes; where members come
        when they like, until it is interrupted; or to the end that `commits` sets.

        A step without a backward pass, `optimizer.step()` then `optimizer.zero_grad()`, contributes nothing
        and takes the workers' average. So a server may as well go through the workers' own loop without data,
        which is how it follows a learning rate that changes. Workers must exchange once per step: gradients
        that are accumulated go under `no_sync`.

        Args:
          steps: of a server that is no hub.
          trusted: at a hub whose rule judges by samples that it trusts, the model's loss on a batch of them,
            by the batch's number: on the same samples whenever the number is the same, without draws such as
            dropout's. It is also called at other points than the model, which layers that keep statistics, as
            batch norm does, must not see: let it put these in eval mode.
          commits: a hub ends training after so many in all, those before a checkpoint included, and tells its
            workers; None: it does not.
          after: called after each commit of a hub, with the version of the model: to evaluate, or to store.
          log: a file for all that a hub's machine is given, for `tweed.server.replay`. It grows by the bytes
            of all contributions; one that is there is gone on with. None: there is none.

        Raises: UsageError if this rank is no server, the rule needs trusted samples and there are none, or
          the log cannot be gone on with; DataError if that is damaged.
        """
        if not self.serves:
            raise UsageError(
                f"this rank is not a server of {self.strategy!r}, but trains with data of its own: call "
                "run.serve() only where run.serves is true"
            )
        for _ in range(steps):
            self._optimizers.step()

    def shards(self) -> Iterator[Any]:
        """The shards of this step whose gradients this rank computes, in its order: under `cadence=ByShards`.

            for shard in run.shards():
                loss(model(xs[shard]), ys[shard]).backward()
            optimizer.step()
            optimizer.zero_grad()

        When the next shard is asked for, the gradient of the last one is sent, alone or combined with others,
        and parameters have none. Backward passes within one shard add up. It ends when all are done, or the
        server has enough; `optimizer.step()` then takes the mean over all shards. A worker that was slow goes
        through the steps that it missed without a shard. The server has none.

        Yields: numbers of shards, from 0; under a Lagrange code `tweed.data.coding.work.Half`: see `halves`.
        Raises: UsageError under another cadence, and if called twice in a step.
        """
        raise UsageError(
            f"run.shards() belongs to cadence=ByShards(), and the run is of {self.strategy!r}: call "
            "backward() as always"
        )

    @property
    def verdicts(self) -> Sequence[Verdict]:
        """At a hub, on the contributions of its last update: with which weight each counted, and why.
        Elsewhere empty."""
        return ()

    @property
    def contributions(self) -> Sequence[Any]:
        """At a hub, those of its last update, each a `Contribution`: whose, how old, and with which weight it
        counted, and why. Elsewhere empty."""
        return ()

    @property
    def dropped(self) -> Sequence[int]:
        """At a hub, whose contributions were dropped between its last two updates: they were computed on too
        old a model, and did not move. Elsewhere empty."""
        return ()

    def report_loss(self, loss: float) -> None:
        """Before `optimizer.step()`, at a hub whose rule goes by losses, as `QFair` does: that of the batch.

        Of the steps between two exchanges the first one's counts. It does nothing elsewhere, and under
        `Hub(privacy=...)` the hub does not learn it.
        """

    def epsilon(self, delta: float = 1e-5) -> float:
        """How private this worker's data are, after all that it has sent: see `compress.ClippedNoise`.

        Infinite without `Hub(privacy=...)`, and at a rank that is no hub's worker.

        Raises: UsageError if the accountant, of the extra `privacy`, is not installed.
        """
        return math.inf

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside add to the gradients and exchange nothing, as in DDP's method of that name.

            with run.no_sync():
                for x, y in batches[:-1]:
                    loss(model(x), y).backward()
            loss(model(*batches[-1])).backward()

        The next backward pass outside exchanges the sum; if none comes before `optimizer.step()`, that call
        does. Nothing changes for a strategy that exchanges no gradients. Must be entered on all ranks alike.
        """
        before, self._exchange.paused = self._exchange.paused, True
        try:
            yield
        finally:
            self._exchange.paused = before
