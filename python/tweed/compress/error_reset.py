"""What was not said is applied at once, by this rank alone, and reset later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tweed.compress.base import Ask, Exchange, Method, Placed, Turn
from tweed.compress.contract import check_contracts
from tweed.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(slots=True)
class Forked:
    """State of `ErrorReset`: `[numel]`, how far this rank's model is from the point common to all."""

    error: Tensor


@dataclass(frozen=True, slots=True)
class ErrorReset:
    """Each rank applies what others said of their movements, and all of its own. Models fork; every so many
    exchanges the fork is compressed, averaged and reset.

    The mean of all ranks' models moves as if nothing were compressed, whatever the compressors. That mean is
    the model: evaluate it with `run.averaged()`.

    Args:
      compressor: of movements; `Nothing()` exchanges none.
      reset: compressor of the fork.
      every: exchanges from one reset to the next.

    Settings: CSER has two compressors; CSEA is `ErrorReset(Nothing(), compressor)`; CSER-PL the same with
      `every` above 1; plain local SGD is `ErrorReset(Nothing(), Identity(), every)`.
    Raises: UsageError unless `every` is 1 or more.
    Cost: bytes of `compressor`, and those of `reset` divided by `every`. Memory for one more copy of the
      model, and one while it exchanges.
    Source: CSER, arXiv 2007.13221, 2020, algorithm 2.
    """

    compressor: Method
    reset: Method
    every: int = 1

    exchanges: ClassVar[frozenset[str]] = frozenset({"step", "difference"})
    reason: ClassVar[str] = "what is not said moves this rank's model, and a gradient moves none"
    forks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_contracts("ErrorReset", self.reset)
        if self.every < 1:
            raise UsageError(f"error reset: every={self.every!r} is to be 1 or more exchanges")

    @property
    def parts(self) -> Mapping[str, Method]:
        """See `Memory`."""
        return {"main": self.compressor, "reset": self.reset}

    def start(self, like: Tensor) -> Forked:
        """All models are equal."""
        return Forked(like.new_zeros(like.shape))

    def exchange(self, value: Tensor, state: Forked, turn: Turn, silent: bool = False) -> Exchange:
        """See `Memory`."""
        rest = value.clone() if silent else value.new_zeros(value.shape)
        mean = yield Ask(self.compressor, value, None if silent else rest, silent=silent)
        state.error.add_(rest)
        advance = rest.add_(mean)
        if (turn.step + 1) % self.every == 0:
            advance.sub_(state.error)
            mean = yield Ask(self.reset, value.zero_(), state.error, "reset", silent)
            advance.add_(state.error).add_(mean)
        return Placed(advance)
