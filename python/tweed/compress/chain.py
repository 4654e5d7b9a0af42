"""Few values, each in few bits, and their places in few bits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, get_args

from tweed.compress.base import Compressor, Spec, Turn
from tweed.compress.checks import check_contracts
from tweed.compress.entries import Coding, Entries
from tweed.compress.levels import Levels
from tweed.compress.nonzero import Nonzero
from tweed.compress.packet import HEADER_BYTES, Packet
from tweed.compress.quantise import Quantise
from tweed.compress.sign import Sign
from tweed.errors import StrategyError, UsageError

if TYPE_CHECKING:
    from torch import Tensor

ValueCodec = Quantise | Levels | Sign


class Sparse(Compressor[Any], Protocol):
    """A compressor that sends some of the values."""

    def counts(self, spec: Spec) -> list[tuple[int, int]]:
        """How many it sends, of how many, of each part of the buffer that it chooses from alone."""
        ...


@dataclass(frozen=True, slots=True)
class Chain:
    """Chooses values, writes them in few bits, and writes where they belong in few bits.

    Args:
      sparse: chooses: `TopK` or `Threshold`.
      values: writes what was chosen: `Quantise`, best rounded to nearest, `Sign` or `Levels`; None: float32.
      indices: how places are written.
      bidirectional: the average goes back in the same form; what is left stays with the owner of the range.
        Otherwise it goes back exactly, its indices written in the same way.

    Raises: StrategyError if parts do not fit together.
    Cost: what the parts take; coding indices takes time by their number.
    Source: Strom, "Scalable distributed DNN training using commodity GPU cloud computing", 2015; Sattler et
      al., "Sparse binary compression", 2018.
    """

    sparse: Sparse
    values: ValueCodec | None = None
    indices: Coding = "shortest"
    bidirectional: bool = False

    unbiased = False
    sums = False

    def __post_init__(self) -> None:
        if not hasattr(self.sparse, "counts"):
            raise StrategyError(
                f"Chain does not go with sparse={self.sparse!r}, which does not choose single values: take "
                "TopK or Threshold, or quantise all values without a chain"
            )
        if not isinstance(self.values, ValueCodec | None):
            raise StrategyError(
                f"Chain does not go with values={self.values!r}: take Quantise, Levels or Sign"
            )
        if self.indices not in get_args(Coding):
            raise UsageError(f"chain: indices={self.indices!r} is none of {', '.join(get_args(Coding))}")
        if self.values is not None:
            check_contracts("Chain", self.values)

    @property
    def reply_codec(self) -> Chain | Nonzero:
        return self if self.bidirectional else Nonzero(self.indices)

    def start(self, spec: Spec) -> Any:
        """The state of `sparse` before the first turn."""
        return self.sparse.start(spec)

    def encode(
        self, value: Tensor, state: Any, turn: Turn, error: Tensor | None = None
    ) -> tuple[Packet, Any]:
        from tweed.compress.native import sparse

        packet, state = self.sparse.encode(value, state, turn, error)
        if not isinstance(packet, Entries):
            return packet, state
        if self.values is None or not len(packet.values):
            return replace(packet, coding=self.indices), state
        codes, _ = self.values.encode(packet.values, None, turn)
        sent = packet.values.new_zeros(packet.values.shape)
        codes.add_to(sent)
        if error is not None:
            sparse.scatter_add(error, packet.indices, packet.values - sent)
        return Entries(packet.indices, sent, packet.numel, self.indices, codes), state

    def error_bound(self, spec: Spec) -> float:
        """What is not chosen, and what is not sent of the rest."""
        lost = self.sparse.error_bound(spec)
        count = sum(count for count, _ in self.sparse.counts(spec))
        rounded = 0.0 if self.values is None else self.values.error_bound(Spec(((count,),)))
        return max(rounded, lost + rounded * (1 - lost))

    def packet_bytes(self, spec: Spec) -> float:
        """Values and indices, where places are spread evenly over each part that is chosen from."""
        counts = self.sparse.counts(spec)
        count = sum(count for count, _ in counts)
        values = 4.0 * count
        if self.values is not None:
            values = self.values.packet_bytes(Spec(((count,),))) - HEADER_BYTES
        by_coding: dict[str, float] = {
            "raw": 4.0 * count,
            "delta": sum(count * _gap_bytes(count / numel) for count, numel in counts if numel),
            "bitmap": float(-(-spec.numel // 8)),
        }
        shortest = min(by_coding.values())
        return HEADER_BYTES + values + by_coding.get(self.indices, shortest)


def _gap_bytes(density: float) -> float:
    """Mean bytes per index of `delta_encode`: the gaps are geometric, and the largest of a block counts."""
    from tweed.compress.native.sparse import BLOCK  # loads the extension module

    widths: float = sum(1 - (1 - (1 - density) ** 2**width) ** BLOCK for width in range(31))
    return (1 + BLOCK * widths / 8) / BLOCK
