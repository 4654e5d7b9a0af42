"""What was not sent moves the point at which the next gradient is taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tweed.compress.base import Codec, Memory, ReduceRequest, ReduceRequests, Turn, Update
from tweed.compress.checks import check_contracts
from tweed.compress.identity import Identity
from tweed.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(slots=True)
class Ahead:
    """State of `StepAhead`: `[numel]`, what is still to be sent."""

    error: Tensor


@dataclass(frozen=True, slots=True)
class StepAhead(Memory[Ahead]):
    """Takes the next gradient where the model would be, had all been sent.

    Args:
      compressor: of movements, which begin at the point ahead and so contain what was left.
      fraction: how much of what was left is stepped ahead, from 0 to 1; the rest is fed back as by
        `ErrorFeedback`. 1 is SAEF, 0 plain error feedback, between them SA-PEF.
      average_every: exchanges from one averaging of errors over all ranks to the next; 0: never. With 1, the
        model plus the error follows the uncompressed path exactly.

    Raises: UsageError for other values.
    Cost: bytes of `compressor`, and 4 per value divided by `average_every`. Memory for one more copy of what
      is exchanged, and one while it exchanges.
    Source: SAEF, arXiv 2008.05823, 2021, algorithm 1; SA-PEF for the fraction.
    """

    compressor: Codec
    fraction: float = 1.0
    average_every: int = 0

    exchanges: ClassVar[frozenset[str]] = frozenset({"step", "difference"})
    reason: ClassVar[str] = "a step ahead moves the model, and a gradient moves none"
    one_model: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_contracts("StepAhead", self.compressor)
        if not 0 <= self.fraction <= 1:
            raise UsageError(f"step ahead: fraction={self.fraction!r} is to be from 0 to 1")
        if self.average_every < 0:
            raise UsageError(f"step ahead: average_every={self.average_every!r} is to be 0 or more exchanges")

    @property
    def parts(self) -> Mapping[str, Codec]:
        parts: dict[str, Codec] = {"main": self.compressor}
        return parts | ({"average": Identity()} if self.average_every else {})

    def start(self, like: Tensor) -> Ahead:
        return Ahead(like.new_zeros(like.shape))

    def exchange(self, value: Tensor, state: Ahead, turn: Turn, silent: bool = False) -> ReduceRequests:
        state.error.mul_(1 - self.fraction)
        if silent:
            state.error.add_(value)
        mean = yield ReduceRequest(self.compressor, value, state.error, silent=silent)
        if not (self.average_every and (turn.step + 1) % self.average_every == 0):
            return Update(mean, state.error * self.fraction)
        advance = mean.clone()
        mean = yield ReduceRequest(Identity(), value.copy_(state.error), None, "average", silent)
        if silent:  # It gave nothing to the mean, and keeps that: the sum over ranks stays.
            state.error.add_(mean)
        else:
            state.error.copy_(mean)
        return Update(advance, state.error * self.fraction)
