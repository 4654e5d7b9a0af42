"""What was said last counts until something else is said: lazily aggregated gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tweed.compress.base import Ask, Exchange, Method, Placed, Spec, Turn
from tweed.errors import StrategyError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(slots=True)
class Standing:
    """State of `LastSaid`: what this rank's word stands at, and the mean of all ranks' words; `[numel]`
    both."""

    said: Tensor
    mean: Tensor


@dataclass(frozen=True, slots=True)
class LastSaid:
    """Says how its value differs from what it said last. All use the mean of what was said last, so a silent
    rank counts with an old value instead of none.

    What the compressor leaves out of a difference is in the next one. Without a cadence that is silent now
    and then this is compression of differences.

    Raises: StrategyError for a compressor that compresses the way back too.
    Cost: memory for two more copies of what is exchanged.
    Source: Chen, Giannakis, Sun, Yin, "LAG: lazily aggregated gradient for communication-efficient
      distributed learning", 2018.
    """

    compressor: Method

    exchanges: ClassVar[frozenset[str]] = frozenset({"gradient", "step"})
    reason: ClassVar[str] = "what was said of another round is no part of this one"
    forks: ClassVar[bool] = False

    def __post_init__(self) -> None:
        back = self.compressor.back
        if back is not None and back.error_bound(Spec(((1024,),))) > 0:
            raise StrategyError(
                f"LastSaid does not go with {self.compressor!r}: what the way back loses of a difference "
                "would be missing for good. Take both_ways=False"
            )

    @property
    def parts(self) -> Mapping[str, Method]:
        """See `Memory`."""
        return {"main": self.compressor}

    def start(self, like: Tensor) -> Standing:
        """Everybody's word is zero."""
        return Standing(like.new_zeros(like.shape), like.new_zeros(like.shape))

    def pending(self, value: Tensor, state: Standing) -> float:
        """See `Weighed`."""
        return float((value - state.said).square().sum())

    def exchange(self, value: Tensor, state: Standing, turn: Turn, silent: bool = False) -> Exchange:
        """See `Memory`."""
        rest = value.new_zeros(value.shape)
        said = state.said if silent else value.clone()
        state.mean.add_((yield Ask(self.compressor, value.sub_(state.said), rest, silent=silent)))
        state.said = said if silent else said.sub_(rest)
        return Placed(state.mean.clone())
