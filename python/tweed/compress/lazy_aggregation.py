"""What was sent last counts until something else is sent: lazily aggregated gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tweed.compress.base import Codec, Memory, ReduceRequest, ReduceRequests, Spec, Turn, Update
from tweed.errors import StrategyError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(slots=True)
class LastSent:
    """State of `LazyAggregation`: what this rank sent last, and the mean of what all did; `[numel]` both."""

    sent: Tensor
    mean: Tensor


@dataclass(frozen=True, slots=True)
class LazyAggregation(Memory[LastSent]):
    """Sends how its value differs from what it sent last. All use the mean of what was sent last, so a silent
    rank counts with an old value instead of none.

    What the compressor leaves out of a difference is in the next one. Without a cadence that is silent now
    and then this is compression of differences.

    Raises: StrategyError for a codec that compresses replies too.
    Cost: memory for two more copies of what is exchanged.
    Source: Chen, Giannakis, Sun, Yin, "LAG: lazily aggregated gradient for communication-efficient
      distributed learning", 2018.
    """

    compressor: Codec

    exchanges: ClassVar[frozenset[str]] = frozenset({"gradient", "step"})
    reason: ClassVar[str] = "what was sent of another round is no part of this one"
    sends_differences: ClassVar[bool] = True
    measures_norm: ClassVar[bool] = True

    def __post_init__(self) -> None:
        reply = self.compressor.reply_codec
        by_owners = not self.compressor.sums
        if by_owners and reply is not None and reply.error_bound(Spec(((1024,),))) > 0:
            raise StrategyError(
                f"LazyAggregation does not go with {self.compressor!r}: what a compressed reply loses of a "
                "difference would be missing for good. Take bidirectional=False"
            )

    @property
    def parts(self) -> Mapping[str, Codec]:
        return {"main": self.compressor}

    def start(self, like: Tensor) -> LastSent:
        """Nobody has sent anything: zero."""
        return LastSent(like.new_zeros(like.shape), like.new_zeros(like.shape))

    def pending(self, value: Tensor, state: LastSent) -> float:
        return float((value - state.sent).square().sum())

    def exchange(self, value: Tensor, state: LastSent, turn: Turn, silent: bool = False) -> ReduceRequests:
        rest = value.new_zeros(value.shape)
        sent = state.sent if silent else value.clone()
        state.mean.add_((yield ReduceRequest(self.compressor, value.sub_(state.sent), rest, silent=silent)))
        state.sent = sent if silent else sent.sub_(rest)
        return Update(state.mean.clone())
