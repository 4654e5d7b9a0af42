"""Random draws as pure functions of a seed: the same arguments give the same draw on every machine.

`splitmix64` mixes seeds into keys, `uniform` draws one number; `bits`, `uniforms` and `permutation` draw
tensors by a key, any part of which can be had alone; `source` gives bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_MASK_64, _MASK_32 = 2**64 - 1, 2**32 - 1
_FEISTEL_ROUNDS = 4


def splitmix64(value: int) -> int:
    """A 64-bit number of which every bit depends on every bit of `value`.

    Source: the finaliser of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
      2014).
    """
    value = (value + 0x9E3779B97F4A7C15) & _MASK_64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK_64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK_64
    return value ^ (value >> 31)


def uniform(seed: int, *numbers: int) -> float:
    """A draw from [0, 1), another one for each seed and each tuple of `numbers`."""
    key = splitmix64(seed & _MASK_64)
    for number in numbers:
        key = splitmix64(key ^ (number & _MASK_64))
    return (key >> 11) / 2**53


def bits(key: int, start: int, count: int, device: torch.device | str = "cpu") -> Tensor:
    """Draws `start` to `start + count` of `key`, uniform over 0 to 2^32 - 1: `[count]` int64.

        k = splitmix64(key)                              (once)
        h = (i * 0x9e3779b1 + low half of k) mod 2^32
        h ^= h >> 16;  h *= 0x21f0aaad;  h ^= high half of k
        h ^= h >> 15;  h *= 0xd35a2d97;  h ^= h >> 15

    Two rounds of an integer hash over a Weyl sequence (without that, numbers some power of two apart are
    related), with the key put in twice: in front, and between the rounds, so that the draws of two keys are
    no shifted copies of each other. For one key it is a bijection of 32 bits: it repeats after 2^32 numbers.
    `tests/test_rng.py` looks at single bits, pairs of bits, bytes, numbers at 20 distances, and keys that
    differ in one bit.

    Args:
      key: 64 bits.

    Cost: a dozen passes of torch; the native kernels do the same sums in registers.
    Source: C. Wellons, "Prospecting for hash functions", 2018, and its list of constants.
    """
    import torch

    key = splitmix64(key)
    h = torch.arange(start, start + count, dtype=torch.int64, device=device)
    h = h.mul_(0x9E3779B1).add_(key & _MASK_32).bitwise_and_(_MASK_32)
    h = h.bitwise_xor_(h >> 16).mul_(0x21F0AAAD).bitwise_and_(_MASK_32)
    h = h.bitwise_xor_(key >> 32)
    h = h.bitwise_xor_(h >> 15).mul_(0xD35A2D97).bitwise_and_(_MASK_32)
    return h.bitwise_xor_(h >> 15)


def uniforms(key: int, start: int, count: int, device: torch.device | str = "cpu") -> Tensor:
    """The upper 24 bits of each of `bits` as a number of [0, 1): `[count]` float32."""
    return (bits(key, start, count, device) >> 8).float().mul_(2.0**-24)


def source(seed: int, *numbers: int) -> Callable[[int], bytes]:
    """Endless bytes for simulations: each call gives the next ones, others for each seed and each tuple of
    `numbers`. They can be guessed: live noise takes `os.urandom`."""
    key, block = splitmix64(seed & _MASK_64), 0
    for number in numbers:
        key = splitmix64(key ^ (number & _MASK_64))

    def give(count: int) -> bytes:
        nonlocal block
        block += 1
        drawn = bits(splitmix64(key ^ block), 0, -(-count // 4))
        return drawn.numpy().astype("<u4").tobytes()[:count]

    return give


@lru_cache(maxsize=16)
def permutation(low: int, high: int, numel: int, key: int, device: torch.device | str = "cpu") -> Tensor:
    """Where a permutation of `numel` numbers, drawn by `key`, takes the places from `low` to `high`.

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

    width = max(2, (numel - 1).bit_length())
    out = _feistel(torch.arange(low, high, device=device), width, key)
    outside = (out >= numel).nonzero().squeeze(1)
    while outside.numel():
        out[outside] = _feistel(out[outside], width, key)
        outside = outside[out[outside] >= numel]
    return out


def _feistel(places: Tensor, width: int, key: int) -> Tensor:
    right_bits = width // 2
    left, right = places >> right_bits, places & (2**right_bits - 1)
    for number in range(_FEISTEL_ROUNDS):
        left = left ^ _hashed(right, key, 2 * number) & (2 ** (width - right_bits) - 1)
        right = right ^ _hashed(left, key, 2 * number + 1) & (2**right_bits - 1)
    out: Tensor = left << right_bits | right
    return out


def _hashed(values: Tensor, key: int, number: int) -> Tensor:
    """32 bits that depend on all bits of `values` and of `key`: multiplied by odd constants modulo 2^32."""
    start = (key >> (16 * (number % 3))) + 0x9E3779B9 * number & _MASK_32
    values = (values + start) * 0x85EBCA6B & _MASK_32
    values = (values ^ values >> 15) * 0xC2B2AE35 & _MASK_32
    return values ^ values >> 13
