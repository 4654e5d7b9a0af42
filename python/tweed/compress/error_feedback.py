"""What was not sent is sent later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tweed.compress.base import Codec, Memory, ReduceRequest, ReduceRequests, Turn, Update
from tweed.compress.checks import check_contracts

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(slots=True)
class Residual:
    """State of `ErrorFeedback`: `[numel]`, what is still to be sent."""

    error: Tensor


@dataclass(frozen=True, slots=True)
class ErrorFeedback(Memory[Residual]):
    """Adds what was left of the last exchange to the next.

    Raises: StrategyError for a compressor whose random draws leave more than it was given.
    Cost: memory for one more copy of what is exchanged.
    Source: Karimireddy et al., "Error feedback fixes SignSGD and other gradient compression schemes", 2019.
    """

    compressor: Codec

    exchanges: ClassVar[frozenset[str]] = frozenset({"gradient", "step", "difference"})
    reason: ClassVar[str] = "what was left of a model is no part of the next one"
    one_by_one: ClassVar[bool] = True
    measures_norm: ClassVar[bool] = True
    overlaps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_contracts("ErrorFeedback", self.compressor)

    @property
    def parts(self) -> Mapping[str, Codec]:
        return {"main": self.compressor}

    def start(self, like: Tensor) -> Residual:
        return Residual(like.new_zeros(like.shape))

    def pending(self, value: Tensor, state: Residual) -> float:
        return float((value + state.error).square().sum())

    def residual(self, state: Residual) -> Tensor:
        return state.error

    def exchange(self, value: Tensor, state: Residual, turn: Turn, silent: bool = False) -> ReduceRequests:
        if silent:
            state.error.add_(value)
        mean = yield ReduceRequest(self.compressor, value, state.error, silent=silent)
        return Update(mean)
