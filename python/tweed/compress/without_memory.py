"""No memory: what a packet leaves out is forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tweed.compress.base import Codec, Memory, ReduceRequest, ReduceRequests, Turn, Update

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Direct(Memory[None]):
    """Compresses, averages, and forgets the rest: for compressors that are unbiased, or nearly exact.

    Args:
      compressor: how.
      weight: what is sent is multiplied with it: 1 / p where a rank sends with probability p.
    """

    compressor: Codec
    weight: float = 1.0

    exchanges: ClassVar[frozenset[str]] = frozenset({"gradient", "step", "difference"})
    reason: ClassVar[str] = "a model that is compressed loses parameters"
    one_by_one: ClassVar[bool] = True
    memoryless: ClassVar[bool] = True
    measures_norm: ClassVar[bool] = True
    overlaps: ClassVar[bool] = True

    @property
    def parts(self) -> Mapping[str, Codec]:
        return {"main": self.compressor}

    def start(self, like: Tensor) -> None:
        pass

    def pending(self, value: Tensor, state: None) -> float:
        return float(value.square().sum())

    def exchange(self, value: Tensor, state: None, turn: Turn, silent: bool = False) -> ReduceRequests:
        if self.weight != 1:
            value.mul_(self.weight)
        mean = yield ReduceRequest(self.compressor, value, silent=silent)
        return Update(mean)
