"""Compression in torch's DistributedDataParallel, as its communication hook."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from tweed.attach.bucket import Bucket
from tweed.attach.finite import tell
from tweed.attach.parcels import Parcels
from tweed.attach.wire import Stats, Wire
from tweed.compress import Memory, Method
from tweed.errors import UsageError
from tweed.strategy import Strategy

log = logging.getLogger("tweed")


def compression(model: DistributedDataParallel, memory: Memory[Any] | Method) -> Compression:
    """Compresses what `model` exchanges.

        model = DistributedDataParallel(model)
        hook = tweed.torch.compression(model, ErrorFeedback(TopK(0.01)))

    A bucket is compressed from the second time on that it is the same: DDP deals parameters out to buckets
    anew after the first backward pass, and what is remembered belongs to a bucket. Until then, gradients go
    as they are. Buckets are exchanged one after the other within the backward pass.

    A gradient that is not finite on some rank becomes NaN on all, the rest of its bucket zero, and a warning
    names parameter and rank; a torch.amp.GradScaler then skips the step. What other buckets have said in that
    step is lost with it; `tweed.attach` loses nothing there.

    Args:
      model: over a process group of any backend. It must have no other communication hook.
      memory: for gradients; a compressor that needs none stands for `Direct` of it.

    Returns: what is remembered and counted; see `Compression`.
    Raises: StrategyError for a memory that is not for gradients.
    """
    return Compression(model, Strategy(compress=memory))


class Compression:
    """What `compression` returns.

    Attributes:
      stats: counters; of `steps` and `exchanges` nothing is counted.
    """

    def __init__(self, model: DistributedDataParallel, strategy: Strategy) -> None:
        assert strategy.memory is not None  # `compression` gives one
        self.stats = Stats()
        self._memory = strategy.memory
        self._wire = Wire(model.process_group, strategy, self.stats)
        self._names = {param: name for name, param in model.module.named_parameters()}
        self._layout: dict[int, list[str]] = {}
        self._parcels: dict[int, Parcels] = {}
        self._stored: dict[int, Any] = {}
        model.register_comm_hook(self, _hook)

    def average(self, given: Any) -> Tensor:
        """The average of a `GradBucket` over ranks, in its own memory."""
        params: list[Any] = given.parameters()
        names = [self._names[param] for param in params]
        bucket = Bucket(given.buffer(), params)
        parcels = self._parcels_of(given.index(), names, params)
        if parcels is None:
            self._wire.wait(self._wire.sum(bucket.flat))
            return bucket.flat.div_(self._wire.size)
        told = tell([bucket], [[True] * len(names)], self._wire)
        error = told.error([names])
        if error is not None:
            log.warning("%s", error)
            return _spoilt(bucket, told.bad[0])
        return bucket.flat.copy_(parcels.exchange([bucket.flat.float()])[0].advance)

    def _parcels_of(self, number: int, names: list[str], params: list[Tensor]) -> Parcels | None:
        """What is kept of a bucket; None if it is another one than the last time."""
        stored = self._stored.get(number, {"names": None})
        before, self._layout[number] = self._layout.get(number), names
        if names not in (before, stored["names"]):
            self._parcels.pop(number, None)
            return None
        if number not in self._parcels:
            self._parcels[number] = Parcels(self._memory, [params], self._wire, first_slot=number)
        if names == stored["names"]:
            self._parcels[number].load(self._stored.pop(number)["parcels"])
        return self._parcels[number]

    def state_dict(self) -> dict[str, Any]:
        """This rank's state, as plain values and tensors; store it beside the model's and the optimizer's."""
        return {
            "memory": repr(self._memory),
            "buckets": {
                number: {"names": self._layout[number], "parcels": parcels.state()}
                for number, parcels in self._parcels.items()
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where `state_dict` was taken, bucket by bucket, when DDP has dealt out the same buckets.

        The first backward pass of a new process comes before that and goes uncompressed, so this is no exact
        resume; `tweed.attach` has that.

        Raises: UsageError for the state of another memory.
        """
        if state["memory"] != repr(self._memory):
            raise UsageError(f"the state is of {state['memory']}, but the hook is of {self._memory!r}")
        self._stored = dict(state["buckets"])


def _hook(state, bucket):  # type: ignore[no-untyped-def]  # torch refuses annotations that are strings
    done: Future[Tensor] = Future()
    done.set_result(state.average(bucket))
    return done


def _spoilt(bucket: Bucket, bad: list[int | None]) -> Tensor:
    bucket.flat.zero_()
    for view, rank in zip(bucket.views, bad, strict=True):
        if rank is not None:
            view.fill_(math.nan)
    return bucket.flat
