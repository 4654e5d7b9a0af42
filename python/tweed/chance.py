"""Chance as a pure function: the same numbers in, the same draw out, on every machine.

Source: the finaliser of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
  2014).
"""

from __future__ import annotations

_MASK = 2**64 - 1


def mixed(value: int) -> int:
    """A 64-bit number of which every bit depends on every bit of `value`."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def uniform(seed: int, *numbers: int) -> float:
    """A draw from [0, 1), another one for each seed and each tuple of `numbers`."""
    key = mixed(seed & _MASK)
    for number in numbers:
        key = mixed(key ^ (number & _MASK))
    return (key >> 11) / 2**53
