"""What was not sent is applied at once: to this rank's model, or to the point of its next gradient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tweed.compress.base import Codec, ReduceRequest, ReduceRequests, Turn, Update, check_contracts
from tweed.compress.error_feedback import Residual
from tweed.compress.identity import Identity
from tweed.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class ErrorReset:
    """Each rank applies what others sent of their movements, and all of its own. Models diverge; every so
    many exchanges the difference is compressed, averaged and reset.

    The state is how far this rank's model is from the point common to all.
    The mean of all ranks' models moves as if nothing were compressed, whatever the compressors. That mean is
    the model: evaluate it with `run.averaged()`.

    Args:
      compressor: of movements; `Nothing()` exchanges none.
      reset: compressor of the difference.
      every: exchanges from one reset to the next.

    Settings: CSER has two compressors; CSEA is `ErrorReset(Nothing(), compressor)`; CSER-PL the same with
      `every` above 1; plain local SGD is `ErrorReset(Nothing(), Identity(), every)`.
    Raises: UsageError unless `every` is 1 or more.
    Cost: bytes of `compressor`, and those of `reset` divided by `every`. Memory for one more copy of the
      model, and one while it exchanges.
    Source: CSER, arXiv 2007.13221, 2020, algorithm 2.
    """

    compressor: Codec
    reset: Codec
    every: int = 1

    exchanges: ClassVar[frozenset[str]] = frozenset({"step", "difference"})
    reason: ClassVar[str] = "what is not sent moves this rank's model, and a gradient moves none"
    replicas_diverge: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_contracts("ErrorReset", self.reset)
        if self.every < 1:
            raise UsageError(f"error reset: every={self.every!r} is to be 1 or more exchanges")

    @property
    def parts(self) -> Mapping[str, Codec]:
        """See `Memory`."""
        return {"main": self.compressor, "reset": self.reset}

    def start(self, like: Tensor) -> Residual:
        """All models are equal."""
        return Residual(like.new_zeros(like.shape))

    def exchange(self, value: Tensor, state: Residual, turn: Turn, silent: bool = False) -> ReduceRequests:
        """See `Memory`."""
        rest = value.clone() if silent else value.new_zeros(value.shape)
        mean = yield ReduceRequest(self.compressor, value, None if silent else rest, silent=silent)
        state.error.add_(rest)
        advance = rest.add_(mean)
        if (turn.step + 1) % self.every == 0:
            advance.sub_(state.error)  # back to the common point, and on from there by the reset
            mean = yield ReduceRequest(self.reset, value.zero_(), state.error, "reset", silent)
            advance.add_(state.error).add_(mean)
        return Update(advance)


@dataclass(frozen=True, slots=True)
class StepAhead:
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
    replicas_diverge: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_contracts("StepAhead", self.compressor)
        if not 0 <= self.fraction <= 1:
            raise UsageError(f"step ahead: fraction={self.fraction!r} is to be from 0 to 1")
        if self.average_every < 0:
            raise UsageError(f"step ahead: average_every={self.average_every!r} is to be 0 or more exchanges")

    @property
    def parts(self) -> Mapping[str, Codec]:
        """See `Memory`."""
        parts: dict[str, Codec] = {"main": self.compressor}
        return parts | ({"average": Identity()} if self.average_every else {})

    def start(self, like: Tensor) -> Residual:
        """Nothing is left."""
        return Residual(like.new_zeros(like.shape))

    def exchange(self, value: Tensor, state: Residual, turn: Turn, silent: bool = False) -> ReduceRequests:
        """See `Memory`."""
        state.error.mul_(1 - self.fraction)  # the other share is in `value`, which began at the point ahead
        if silent:
            state.error.add_(value)
        mean = yield ReduceRequest(self.compressor, value, None if silent else state.error, silent=silent)
        if not (self.average_every and (turn.step + 1) % self.average_every == 0):
            return Update(mean, state.error * self.fraction)
        advance = mean.clone()
        mean = yield ReduceRequest(Identity(), value.copy_(state.error), None, "average", silent)
        if silent:  # It gave nothing to the mean, and keeps that: the sum over ranks stays.
            state.error.add_(mean)
        else:
            state.error.copy_(mean)
        return Update(advance, state.error * self.fraction)
