"""What was not said is said later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tweed.compress.base import Ask, Exchange, Method, Placed, Turn
from tweed.compress.contract import check_contracts

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(slots=True)
class Owed:
    """State of `ErrorFeedback`: `[numel]`, what is still to be said."""

    error: Tensor


@dataclass(frozen=True, slots=True)
class ErrorFeedback:
    """Adds what was left of the last exchange to the next.

    Raises: StrategyError for a compressor whose chance leaves more than it was given.
    Cost: memory for one more copy of what is exchanged.
    Source: Karimireddy et al., "Error feedback fixes SignSGD and other gradient compression schemes", 2019.
    """

    compressor: Method

    exchanges: ClassVar[frozenset[str]] = frozenset({"gradient", "step", "difference"})
    reason: ClassVar[str] = "what was left of a model is no part of the next one"
    forks: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_contracts("ErrorFeedback", self.compressor)

    @property
    def parts(self) -> Mapping[str, Method]:
        """See `Memory`."""
        return {"main": self.compressor}

    def start(self, like: Tensor) -> Owed:
        """Nothing is owed."""
        return Owed(like.new_zeros(like.shape))

    def pending(self, value: Tensor, state: Owed) -> float:
        """See `Weighed`."""
        return float((value + state.error).square().sum())

    def exchange(self, value: Tensor, state: Owed, turn: Turn, silent: bool = False) -> Exchange:
        """See `Memory`."""
        if silent:
            state.error.add_(value)
        mean = yield Ask(self.compressor, value, state.error, silent=silent)
        return Placed(mean)
