"""Lots that are drawn alike everywhere: a permutation as a pure function of a key and a place."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_ROUNDS = 4
_LOW = 2**32 - 1


@lru_cache(maxsize=16)
def drawn(low: int, high: int, numel: int, key: int, device: torch.device | str = "cpu") -> Tensor:
    """Where a permutation of `numel` values, drawn by `key`, takes the places from `low` to `high`.

    Args:
      low, high: at most `numel`.
      key: 64 bits.

    Returns: `[high - low]` int64, the same on every device; not to be changed. Workers of one process, and a
      sum that comes back, get the same tensor.
    Cost: at most two applications of a cipher per place in the mean, whatever `numel`.
    Source: a Feistel network over the next power of two, walked until it comes back below `numel` (Black and
      Rogaway, "Ciphers with arbitrary finite domains", 2002).
    """
    import torch

    bits = max(2, (numel - 1).bit_length())
    out = _shuffled(torch.arange(low, high, device=device), bits, key)
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
