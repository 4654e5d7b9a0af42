"""Chance as a function: number `i` of a key, the same on every machine, device and instruction set.

    k = mixed(key)                                   (`tweed.chance`; once)
    h = (i * 0x9e3779b1 + low half of k) mod 2^32
    h ^= h >> 16;  h *= 0x21f0aaad;  h ^= high half of k
    h ^= h >> 15;  h *= 0xd35a2d97;  h ^= h >> 15

Two rounds of an integer hash over a Weyl sequence (without that, numbers some power of two apart are
related), with the key put in twice: in front, and between the rounds, so that the values of two keys are no
shifted copies of each other. For one key it is a bijection of 32 bits: it repeats after 2^32 numbers.
`tests/compress/test_native_quant.py` looks at single bits, pairs of bits, bytes, numbers at 20 distances, and
keys that differ in one bit.

Source: C. Wellons, "Prospecting for hash functions", 2018, and its list of constants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tweed.chance import mixed

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_MASK = 2**32 - 1


def chance(key: int, start: int, count: int, device: torch.device | str = "cpu") -> Tensor:
    """Numbers `start` to `start + count` of `key`, uniform over 0 to 2^32 - 1: `[count]` int64.

    Args:
      key: 64 bits.

    Cost: a dozen passes of torch; the native kernels do the same sums in registers.
    """
    import torch

    key = mixed(key)
    h = torch.arange(start, start + count, dtype=torch.int64, device=device)
    h = h.mul_(0x9E3779B1).add_(key & _MASK).bitwise_and_(_MASK)
    h = h.bitwise_xor_(h >> 16).mul_(0x21F0AAAD).bitwise_and_(_MASK)
    h = h.bitwise_xor_(key >> 32)
    h = h.bitwise_xor_(h >> 15).mul_(0xD35A2D97).bitwise_and_(_MASK)
    return h.bitwise_xor_(h >> 15)


def uniform(key: int, start: int, count: int, device: torch.device | str = "cpu") -> Tensor:
    """The upper 24 bits of each as a number of [0, 1): `[count]` float32."""
    return (chance(key, start, count, device) >> 8).float().mul_(2.0**-24)
