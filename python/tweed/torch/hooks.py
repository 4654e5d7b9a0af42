"""Compression in torch's DistributedDataParallel, as its communication hook."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from tweed.compress import Codec, Memory
from tweed.errors import UsageError
from tweed.exchange.bucket import Bucket
from tweed.exchange.checkpoint import FORMAT, check_format
from tweed.exchange.communicator import Communicator, Stats
from tweed.exchange.compressed_buffers import CompressedBuffers
from tweed.exchange.finite import all_reduce_flags, fill_nan
from tweed.exchange.pending import wait_for
from tweed.strategy import Strategy

log = logging.getLogger("tweed")


def compression(model: DistributedDataParallel, memory: Memory[Any] | Codec) -> Compression:
    """Compresses what `model` exchanges.

        model = DistributedDataParallel(model)
        hook = tweed.torch.compression(model, ErrorFeedback(TopK(0.01)))

    A bucket is compressed from the second time on that it is the same: DDP deals parameters out to buckets
    anew after the first backward pass, and what is remembered belongs to a bucket. Until then, gradients go
    as they are. Buckets are exchanged one after the other within the backward pass.

    A gradient that is not finite on some rank becomes NaN on all, the rest of its bucket zero, and a warning
    names parameter and rank; a torch.amp.GradScaler then skips the step. What other buckets have sent in that
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
        self._comm = Communicator(model.process_group, strategy, self.stats)
        self._names = {param: name for name, param in model.module.named_parameters()}
        self._layout: dict[int, list[str]] = {}
        self._compressed: dict[int, CompressedBuffers] = {}
        self._stored: dict[int, Any] = {}
        model.register_comm_hook(self, _hook)

    def average(self, given: Any) -> Tensor:
        """The average of a `GradBucket` over ranks, in its own memory."""
        params: list[Any] = given.parameters()
        names = [self._names[param] for param in params]
        bucket = Bucket(given.buffer(), params)
        compressed = self._compressed_of(given.index(), names, params)
        if compressed is None:
            return self._comm.mean(bucket.flat)
        flags = all_reduce_flags([bucket], [[True] * len(names)], self._comm)
        error = flags.error([names])
        if error is not None:
            log.warning("%s", error)
            fill_nan(bucket, flags.bad[0])
            return bucket.flat
        [update] = wait_for(compressed.exchange([bucket.flat.float()]))
        return bucket.flat.copy_(update.delta)

    def _compressed_of(self, number: int, names: list[str], params: list[Tensor]) -> CompressedBuffers | None:
        """What is kept of a bucket; None if it is another one than the last time."""
        stored = self._stored.get(number, {"names": None})
        before, self._layout[number] = self._layout.get(number), names
        if names not in (before, stored["names"]):
            self._compressed.pop(number, None)
            return None
        if number not in self._compressed:
            self._compressed[number] = CompressedBuffers(
                self._memory, [params], self._comm, first_slot=number
            )
        if names == stored["names"]:
            self._compressed[number].load(self._stored.pop(number)["buffers"])
        return self._compressed[number]

    def state_dict(self) -> dict[str, Any]:
        """This rank's state, as plain values and tensors; store it beside the model's and the optimizer's."""
        return {
            "format": FORMAT,
            "memory": repr(self._memory),
            "buckets": {
                number: {"names": self._layout[number], "buffers": compressed.state()}
                for number, compressed in self._compressed.items()
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where `state_dict` was taken, bucket by bucket, when DDP has dealt out the same buckets.

        The first backward pass of a new process comes before that and goes uncompressed, so this is no exact
        resume; `tweed.attach` has that.

        Raises: UsageError for the state of another memory, or of another version of tweed.
        """
        check_format(state)
        if state["memory"] != repr(self._memory):
            raise UsageError(f"the state is of {state['memory']}, but the hook is of {self._memory!r}")
        self._stored = dict(state["buckets"])


def _hook(state, bucket):  # type: ignore[no-untyped-def]  # torch refuses annotations that are strings
    done: Future[Tensor] = Future()
    done.set_result(state.average(bucket))
    return done
