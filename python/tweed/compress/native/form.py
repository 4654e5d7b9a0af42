"""In which form a few bits per value, and a scale per block, stand for values.

    scheme    scale of a block       code of a number
    sign      mean of |v|            1 where v is negative (its sign bit is set), else 0
    uniform   largest |v|            q + levels, where v is near q * scale / levels
    levels    l2 norm                the same

A scale below 2^-120 counts as 0, and the block is all zeros; one above 3e38 counts as 3e38. Hence nothing
overflows. `q` is rounded to nearest, ties to even; or at random: a number of [0, 1) is added
(`rng.uniforms`), and the sum rounded down. Then it is limited to `levels`. All is computed in float32, but
for sums, which have a fixed order (`quant_torch`).

Codes are one stream of bits over all values, lowest bit of a byte first, without a gap between blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

from tweed.errors import UsageError

SCHEMES = ("sign", "uniform", "levels")
#: Scales from here on count; smaller ones are 0.
SMALLEST = 2.0**-120
#: Scales up to here, so that no code stands for infinity.
LARGEST = 3e38


@dataclass(frozen=True, slots=True)
class Form:
    """How values are written.

    Args:
      scheme: "sign", "uniform" or "levels": see above.
      bits: per value, 1 for "sign", else 2 to 8.
      block: values that share a scale.
      levels: steps from zero to the scale; 0 means as many as fit, `2^(bits - 1) - 1`.

    Raises: UsageError for a form that there is not.
    """

    scheme: str
    bits: int
    block: int
    levels: int = 0

    def __post_init__(self) -> None:
        fits = self.bits == 1 if self.scheme == "sign" else 2 <= self.bits <= 8
        if self.scheme not in SCHEMES or not fits:
            raise UsageError(f"there are no codes of {self.bits} bits of the scheme {self.scheme!r}")
        if self.block < 1:
            raise UsageError(f"block={self.block}: at least one number has to share a scale")
        if not 0 <= self.levels <= self._most:
            raise UsageError(f"{self.levels} levels and their signs do not fit into {self.bits} bits")
        object.__setattr__(self, "levels", self.levels or self._most)

    @classmethod
    def of_levels(cls, levels: int, block: int) -> Form:
        """QSGD's, with just as many bits as `levels` and a sign need. Source: Alistarh et al. 2017."""
        return cls("levels", 1 + levels.bit_length(), block, levels)

    @property
    def _most(self) -> int:
        return max(1, (1 << (self.bits - 1)) - 1)

    @property
    def fields(self) -> tuple[str, int, int, int]:
        """Scheme, bits, block, levels."""
        return self.scheme, self.bits, self.block, self.levels

    def code_bytes(self, numel: int) -> int:
        """Bytes of the codes of `numel` values."""
        return -(-numel * self.bits // 8)

    def scale_count(self, numel: int, first: int = 0) -> int:
        """Scales of `numel` values, of which the first is at place `first` of its block."""
        return -(-(first + numel) // self.block) if numel else 0
