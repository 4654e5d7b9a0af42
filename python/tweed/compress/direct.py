"""No memory: what a packet does not say is forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tweed.compress.base import Ask, Exchange, Method, Placed, Turn

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Direct:
    """Compresses, averages, and forgets the rest: for compressors that are unbiased, or nearly exact.

    Args:
      compressor: how.
      weight: what is said is multiplied with it: 1 / p where a rank speaks with probability p.
    """

    compressor: Method
    weight: float = 1.0

    exchanges: ClassVar[frozenset[str]] = frozenset({"gradient", "step", "difference"})
    reason: ClassVar[str] = "a model that is compressed loses parameters"
    forks: ClassVar[bool] = False

    @property
    def parts(self) -> Mapping[str, Method]:
        """See `Memory`."""
        return {"main": self.compressor}

    def start(self, like: Tensor) -> None:
        """Nothing to remember."""

    def pending(self, value: Tensor, state: None) -> float:
        """See `Weighed`."""
        return float(value.square().sum())

    def exchange(self, value: Tensor, state: None, turn: Turn, silent: bool = False) -> Exchange:
        """See `Memory`."""
        if self.weight != 1:
            value.mul_(self.weight)
        mean = yield Ask(self.compressor, value, silent=silent)
        return Placed(mean)
