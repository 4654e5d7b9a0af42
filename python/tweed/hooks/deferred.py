"""Exchange of gradients under `cadence=Deferred()`: nobody waits but who reads a gradient or a parameter.

A backward pass starts the exchange of all buckets and returns. Each is a `PendingStep` then, until somebody
reads it. All are completed before the next exchange begins, before a gradient is added to another one, and
before a state is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tweed.errors import UsageError
from tweed.exchange.bucket import Bucket
from tweed.exchange.urgent_gradients import UrgentGradients
from tweed.hooks.gradient import GradientExchange
from tweed.hooks.pending_step import PendingSteps

_FAILED = (
    "a step that was deferred has raised {}: {}. Some of its parameters may have been stepped, so that this "
    "rank's model is another one than the others'. Go on from a checkpoint; with cadence=EveryStep(), "
    "optimizer.step() raises it"
)


class DeferredExchange(GradientExchange):
    """Averages gradients as `GradientExchange` does, and waits for each bucket when it is read.

    Attributes:
      pending: what is under way, and the steps that wait for it; the last is of buffers, which no step
        changes.
    """

    reducer: UrgentGradients
    _completed_in = -1  # the backward pass before which nothing is pending

    def _follow(self) -> None:
        super()._follow()
        self.pending = PendingSteps([*self._params, ()])  # the last is of buffers

    def _listen(self, param: Tensor) -> None:
        super()._listen(param)
        if param.requires_grad:
            self._hooks.append(param.register_hook(self._before_gradient))  # type: ignore[no-untyped-call]

    def _before_gradient(self, gradient: Tensor) -> None:
        """Autograd is about to add to a gradient, which must be an average by then. Nothing begins in a pass
        before its end, so that a look once in each is enough."""
        task = torch._C._current_graph_task_id()
        if task != self._completed_in:
            self.pending.complete()
            self._completed_in = task  # behind it: other threads of the pass wait too

    def _wanted(self) -> bool:
        self.pending.complete()
        wanted = super()._wanted()
        failed = next(filter(None, (one.failed for one in self.pending)), None)
        if failed is not None and self._refused is None:
            self._refused = UsageError(_FAILED.format(type(failed).__name__, failed))
        return wanted

    def _finish(self) -> None:
        """Waits for buckets of which this rank lacks gradients, as others may have some."""
        *each, of_buffers = self.pending
        if self._buffers_on_their_way:
            wait = partial(self._context.receive, self._buffers_on_their_way)
            of_buffers.begin([*self._beside.buffers()], wait)
        for pending, gradients in zip(each, self._buckets, strict=True):
            assert gradients.work is not None  # it has started
            wait = partial(self._receive, gradients.bucket, gradients.work)
            pending.begin(gradients.bucket.views, wait)
        for pending, gradients, params in zip(each, self._buckets, self._params, strict=True):
            if not gradients.full:
                pending.complete()
                self._take_up(gradients, params, self.reducer.contributed(gradients.bucket))

    def _receive(self, bucket: Bucket, work: dist.Work) -> None:
        try:
            self.reducer.receive(bucket, work)
        except BaseException:
            self.pending.drop()  # ranks have raised together, and later buckets have nothing to add
            raise

    def finish(self) -> None:
        """Takes the steps that were deferred."""
        self.pending.complete()
        super().finish()

    def before(self) -> Mapping[str, Any] | None:
        self.pending.complete()
        return super().before()

    def load(self, state: Mapping[str, Any]) -> None:
        self.pending.complete()
        super().load(state)

    def average(self, tensors: list[Tensor]) -> list[Tensor]:
        self.pending.complete()
        return super().average(tensors)

    def close(self) -> None:
        """Takes the steps that were deferred, whose exchanges have begun; then as ever."""
        try:
            self.pending.complete()
        finally:
            super().close()
