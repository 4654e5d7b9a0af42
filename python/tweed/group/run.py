"""The runs of a rank in a group: ranks exchange gradients in step, or models by rounds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from torch import Tensor

from tweed.cadence import ByShards
from tweed.exchange.communicator import Communicator
from tweed.exchange.factor_record import FactorRecord
from tweed.exchange.table import Parts, gradient_reducer, model_exchange
from tweed.exchange.untrained import Untrained
from tweed.group.factors import LinearFactors, factored_weights
from tweed.hooks.deferred import DeferredExchange
from tweed.hooks.deferred_steps import DeferredSteps, defers
from tweed.hooks.gradient import Beside, GradientExchange
from tweed.hooks.run import Run
from tweed.hooks.setup import Setup


def run_in_group(setup: Setup[Communicator]) -> Run:
    """The run of a rank in a group without a hub, by what its strategy exchanges."""
    return GradientRun(setup) if setup.strategy.exchanges_gradients else ModelRun(setup)


class ModelRun(Run):
    """A run in a group that exchanges models, or how far they have moved, after a step."""

    _exchange_looks = True

    def __init__(self, setup: Setup[Communicator]) -> None:
        untrained = Untrained(setup.untrained, setup.context, setup.params.look)
        parts = Parts(setup.strategy, setup.context, setup.cadence, setup.settings.bucket_bytes)
        super().__init__(setup, model_exchange(parts, setup.params, untrained))


class GradientRun(Run):
    """A run in a group that exchanges gradients, in the backward pass or when it has ended."""

    _exchange_looks = True

    def __init__(self, setup: Setup[Communicator]) -> None:
        strategy, settings, model = setup.strategy, setup.settings, setup.model
        self._linears: LinearFactors | None = None  # under exchange="factors"
        record = self._follow_factors(setup) if strategy.exchange == "factors" else None
        parts = Parts(strategy, setup.context, setup.cadence, settings.bucket_bytes, record)
        # Under shards each rank is in another step, so buffers become the same at the end alone.
        shared = settings.sync_buffers and not isinstance(strategy.cadence, ByShards)
        beside = Beside(self._snapshot, self._take_back, model.buffers if shared else list)
        reducer = partial(gradient_reducer, parts)
        kind = DeferredExchange if defers(strategy.cadence, model) else GradientExchange
        self._gradients = kind(setup.params, setup.context, settings.bucket_bytes, reducer, beside)
        self._untrained = Untrained(setup.untrained, setup.context, setup.params.look)
        super().__init__(setup, self._gradients)
        self._steps: DeferredSteps | None = None
        if isinstance(self._gradients, DeferredExchange):
            self._steps = DeferredSteps(setup.optimizers, model, self._gradients)

    def _follow_factors(self, setup: Setup[Communicator]) -> FactorRecord:
        weights = factored_weights(setup.model, setup.params)
        record = FactorRecord(weights.keys(), setup.context.owners.contributors)
        self._linears = LinearFactors(weights, record)
        return record

    def serve(
        self,
        steps: int = 1,
        trusted: Callable[[int], Tensor] | None = None,
        commits: int | None = None,
        after: Callable[[int], None] = lambda version: None,
        log: str | os.PathLike[str] | None = None,
    ) -> None:
        """The server takes `steps` steps by what workers contribute, and at the end receives what they still
        send. See `Run.serve`."""
        super().serve(steps)
        self._gradients.finish()

    def shards(self) -> Iterator[Any]:
        """The shards of this step, in the order of this rank, see `Run.shards`. Raises: UsageError unless the
        cadence is `ByShards`."""
        if not isinstance(self.strategy.cadence, ByShards):
            return super().shards()
        return self._gradients.shards()

    def finish(self) -> None:
        """Makes the model equal on all ranks: what gradients do not keep so becomes the first rank's."""
        super().finish()
        self._untrained.take_first(self._params)

    def detach(self) -> None:
        """Ends the run; linear layers that followed factors are what they were."""
        if self._linears is not None:
            self._linears.remove()
        try:
            super().detach()
        finally:
            if self._steps is not None:
                self._steps.remove()

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """Leaves one model on all ranks, and no hook; after an error, only the latter: for what is under way
        nobody waits then."""
        if kind is not None and isinstance(self._gradients, DeferredExchange):
            self._gradients.pending.drop()
        super().__exit__(kind, *rest)
