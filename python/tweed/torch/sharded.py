"""Compression in torch's FSDP2 (`fully_shard`), as its custom reduce-scatter.

FSDP2 hands over a whole gradient and wants this rank's shard of the average back. So each shard is a buffer
of its own here: this rank compresses it for its owner, and nobody else receives it. What a codec must be
able to do for that:

    it is for gradients            a memory that moves the model has no gradient to give back
    it is done when a shard's      `ErrorFeedback` and `Direct` are; one that goes on with the average of all
      owner has the average        shards (`LowRank`, `LazyAggregation`) would have to send it to all
    it compresses one way          a compressed reply (`reply_codec`) saves nothing: there is no reply
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from tweed.compress import Codec, Compressor, Direct, ErrorFeedback, Memory
from tweed.errors import StrategyError, UsageError
from tweed.exchange.checkpoint import FORMAT, check_format
from tweed.exchange.communicator import Stats
from tweed.strategy import Strategy
from tweed.torch.scatter import PackedReduceScatter


def sharded_compression(model: nn.Module, memory: Memory[Any] | Codec) -> ShardedCompression:
    """Compresses what the modules of `model` that went through `fully_shard` exchange.

        fully_shard(model)
        hook = tweed.torch.sharded_compression(model, ErrorFeedback(TopK(0.01)))

    Each shard of each module's gradient is compressed for itself. If a number of a module's gradient is not
    finite on some rank, its whole gradient becomes NaN on all, and a warning names module and rank.

    Args:
      model: sharded over one group, of any backend.
      memory: `ErrorFeedback` or `Direct`; a compressor that needs none stands for `Direct` of it.

    Returns: what is remembered and counted; see `ShardedCompression`.
    Raises:
      StrategyError: a memory or compressor for which this is impossible; the text says why.
      UsageError: no module of `model` is sharded.
    Cost: with `ErrorFeedback`, memory for the whole gradient on each rank: what is left is this rank's own.
    """
    chosen = Strategy(compress=memory).memory
    assert chosen is not None  # one was given
    return ShardedCompression(model, _checked(chosen))


def _checked(memory: Memory[Any]) -> ErrorFeedback | Direct:
    if not isinstance(memory, ErrorFeedback | Direct):
        raise StrategyError(
            f"compress={memory!r} needs the average of the whole gradient, and in FSDP2 a rank gets its own "
            "shard only. Take ErrorFeedback or Direct"
        )
    if not isinstance(memory.compressor, Compressor):
        raise StrategyError(
            f"compress={memory!r} takes several sums, each of which all ranks must know, and FSDP2 only "
            "gives it to a shard's owner. Take another compressor"
        )
    return memory


class ShardedCompression:
    """What `sharded_compression` returns.

    Attributes:
      stats: counters; of `steps` and `exchanges` nothing is counted.
    """

    def __init__(self, model: nn.Module, memory: ErrorFeedback | Direct) -> None:
        from torch.distributed.fsdp import FSDPModule

        self.stats = Stats()
        self._memory = memory
        modules = [(name, part) for name, part in model.named_modules() if isinstance(part, FSDPModule)]
        if not modules:
            raise UsageError("no module of the model is sharded: call torch's fully_shard first")
        self._parts = {
            name: PackedReduceScatter(name or "the model", memory, slot, self.stats)
            for slot, (name, _) in enumerate(modules)
        }
        for name, part in modules:
            part.set_custom_reduce_scatter(self._parts[name])  # type: ignore[arg-type]  # in form only

    def state_dict(self) -> dict[str, Any]:
        """This rank's state, as plain values and tensors; store it beside the model's and the optimizer's."""
        parts = {name: part.state() for name, part in self._parts.items()}
        return {"format": FORMAT, "memory": repr(self._memory), "parts": parts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on exactly where `state_dict` was taken.

        Raises: UsageError for the state of another memory, of other modules, of another number of ranks or of
          another version of tweed.
        """
        check_format(state)
        if state["memory"] != repr(self._memory) or set(state["parts"]) != set(self._parts):
            raise UsageError(
                f"the state is of {state['memory']} for {sorted(state['parts'])}, and the hook is of "
                f"{self._memory!r} for {sorted(self._parts)}"
            )
        for name, part in self._parts.items():
            part.load(state["parts"][name])
