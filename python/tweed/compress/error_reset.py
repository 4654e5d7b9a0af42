"""What was not sent is applied at once, by this rank alone, and reset later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tweed.compress.base import Codec, Memory, ReduceRequest, ReduceRequests, Turn, Update
from tweed.compress.checks import check_contracts
from tweed.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(slots=True)
class Divergence:
    """State of `ErrorReset`: `[numel]`, how far this rank's model is from the point common to all."""

    error: Tensor


@dataclass(frozen=True, slots=True)
class ErrorReset(Memory[Divergence]):
    """Each rank applies what others sent of their movements, and all of its own. Models diverge; every so
    many exchanges the difference is compressed, averaged and reset.

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
    one_model: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_contracts("ErrorReset", self.reset)
        if self.every < 1:
            raise UsageError(f"error reset: every={self.every!r} is to be 1 or more exchanges")

    @property
    def parts(self) -> Mapping[str, Codec]:
        return {"main": self.compressor, "reset": self.reset}

    def start(self, like: Tensor) -> Divergence:
        """All models are equal."""
        return Divergence(like.new_zeros(like.shape))

    def exchange(self, value: Tensor, state: Divergence, turn: Turn, silent: bool = False) -> ReduceRequests:
        rest = value.clone() if silent else value.new_zeros(value.shape)
        mean = yield ReduceRequest(self.compressor, value, rest, silent=silent)
        state.error.add_(rest)
        advance = rest.add_(mean)
        if (turn.step + 1) % self.every == 0:
            advance.sub_(state.error)
            mean = yield ReduceRequest(self.reset, value.zero_(), state.error, "reset", silent)
            advance.add_(state.error).add_(mean)
        return Update(advance)
