"""Chance that is equal everywhere: pure functions of a key and a place, in whole numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

_ROUNDS = 6
_LOW = 2**32 - 1


def permuted(places: Tensor, numel: int, key: int) -> Tensor:
    """Where a permutation of `numel` numbers, drawn by `key`, takes `places`.

    Args:
      places: `[count]` int64, each below `numel`.
      key: 64 bits.

    Returns: `[count]` int64, the same bits on every device.
    Cost: two applications of a cipher per place in the mean, whatever `numel`.
    Source: a Feistel network over the next power of two, walked until it comes back below `numel` (Black and
      Rogaway, "Ciphers with arbitrary finite domains", 2002).
    """
    bits = max(2, (numel - 1).bit_length())
    out = _shuffled(places, bits, key)
    outside = (out >= numel).nonzero().squeeze(1)
    while outside.numel():
        out[outside] = _shuffled(out[outside], bits, key)
        outside = outside[out[outside] >= numel]
    return out


def _shuffled(places: Tensor, bits: int, key: int) -> Tensor:
    right_bits = bits // 2
    left, right = places >> right_bits, places & (2**right_bits - 1)
    for number in range(_ROUNDS):
        left = left ^ _hashed(right, key, 2 * number) & (2 ** (bits - right_bits) - 1)
        right = right ^ _hashed(left, key, 2 * number + 1) & (2**right_bits - 1)
    out: Tensor = left << right_bits | right
    return out


def _hashed(values: Tensor, key: int, number: int) -> Tensor:
    """32 bits that hang on all bits of `values` and of `key`; multiplication modulo 2^32 by odd constants."""
    start = (key >> (16 * (number % 3))) + 0x9E3779B9 * number & _LOW
    values = (values + start) * 0x85EBCA6B & _LOW
    values = (values ^ values >> 15) * 0xC2B2AE35 & _LOW
    return values ^ values >> 13
