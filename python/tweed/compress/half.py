"""Sixteen bits per value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from tweed.compress.base import Spec, Turn
from tweed.compress.packet import Values
from tweed.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

HalfType = Literal["bfloat16", "float16"]
_ROUNDING = {"bfloat16": 2.0**-9, "float16": 2.0**-11}


@dataclass(frozen=True, slots=True)
class Half:
    """Sends all, rounded to 16 bits.

    Where a memory keeps what rounding leaves (`ErrorFeedback`), owners form averages in 32 bits and reply in
    16, and what this leaves is in their next reply: nothing is lost. Elsewhere (`Direct`) an ordinary
    all-reduce rounds sums to 16 bits on their way, and nobody knows by how much.

    Args:
      dtype: "bfloat16" has the range of float32 and 8 bits of precision; "float16" 11 bits, and what is below
        6e-8 becomes zero.

    Values beyond what a sum over all ranks can hold are cut to that; the rest is left.

    Raises: UsageError for another dtype.
    Cost: 2 bytes per value each way; one pass.
    """

    dtype: HalfType = "bfloat16"

    unbiased = False
    sums = True

    def __post_init__(self) -> None:
        if self.dtype not in get_args(HalfType):
            raise UsageError(f"half: dtype={self.dtype!r} is none of {', '.join(get_args(HalfType))}")

    @property
    def reply_codec(self) -> Half:
        """This codec itself, where owners form the average."""
        return self

    def start(self, spec: Spec) -> None:
        pass

    def encode(
        self, value: Tensor, state: None, turn: Turn, error: Tensor | None = None
    ) -> tuple[Values, None]:
        import torch

        if error is not None:
            value = error.add_(value)
        dtype: torch.dtype = getattr(torch, self.dtype)
        limit = torch.finfo(dtype).max / turn.size
        sent = value.clamp(-limit, limit).to(dtype)
        if error is not None:
            error.sub_(sent)
        return Values(sent, value.numel()), None

    def error_bound(self, spec: Spec) -> float:
        """Half a unit in the last place, squared, for values in the normal range of the dtype."""
        return _ROUNDING[self.dtype] ** 2

    def packet_bytes(self, spec: Spec) -> float:
        return 2.0 * spec.numel
