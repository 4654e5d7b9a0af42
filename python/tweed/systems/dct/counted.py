"""How many values a codec sends, turn by turn: bytes alone do not tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from tweed.compress import Compressor, Entries, Packet, Spec, Turn
from tweed.systems.dct.contenders import ASKED, FROM_STEP


@dataclass(frozen=True, slots=True)
class Counted:
    """A codec that does what `codec` does, and notes how many values it sends.

    Args:
      codec: any with packets.
      shares: per turn, the share of values that was sent; of all workers, one after another.
    """

    codec: Compressor[Any]
    shares: list[float] = field(default_factory=list, compare=False)

    @property
    def unbiased(self) -> bool:
        return self.codec.unbiased

    @property
    def sums(self) -> bool:
        return self.codec.sums

    @property
    def reply_codec(self) -> Compressor[Any] | None:
        """The codec's own reply codec; replies are not counted."""
        return self.codec.reply_codec

    def start(self, spec: Spec) -> Any:
        """The codec's state before the first turn."""
        return self.codec.start(spec)

    def encode(
        self, value: Tensor, state: Any, turn: Turn, error: Tensor | None = None
    ) -> tuple[Packet, Any]:
        """Encodes as the codec does, and notes the share of values sent."""
        packet, state = self.codec.encode(value, state, turn, error)
        count = len(packet.indices) if isinstance(packet, Entries) else packet.numel
        self.shares.append(count / turn.spec.numel)
        return packet, state

    def error_bound(self, spec: Spec) -> float:
        """The codec's error bound."""
        return self.codec.error_bound(spec)

    def packet_bytes(self, spec: Spec) -> float:
        """The bytes of the codec's packet."""
        return self.codec.packet_bytes(spec)


def by_step(shares: Sequence[float], workers: int) -> list[float]:
    """The mean of `shares` over workers, for each step."""
    return [sum(shares[at : at + workers]) / workers for at in range(0, len(shares), workers)]


def sent(shares: Sequence[float]) -> dict[str, float]:
    """The share of values that was sent at each step: the mean; and the least and the most from
    `FROM_STEP` on, over what was asked for."""
    late = shares[FROM_STEP:] or shares or [1.0]
    return {
        "values": sum(shares) / max(1, len(shares)) if shares else 1.0,
        "least": min(late) / ASKED,
        "most": max(late) / ASKED,
    }
