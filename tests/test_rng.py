"""Draws: fair, the same for ever, and each of them to be had alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tweed import rng

KEY = 0x9E3779B97F4A7C15
#: The first four of `rng.bits(KEY, ...)`.
EXPECTED = [2307067465, 1981887653, 3772253522, 1017617151]


def test_splitmix64_is_the_published_one() -> None:
    """The first two of the reference implementation's sequence from the seed 0."""
    assert rng.splitmix64(0) == 0xE220A8397B1DCDAF
    assert rng.splitmix64(KEY) == 0x6E789E6AA1B965F4


def test_bits_are_fair_and_independent() -> None:
    """Bits, bytes, distances and keys, at five deviations; the numbers are fixed, so the outcome is."""
    count = 1 << 18
    drawn = rng.bits(KEY, 0, count).numpy()
    bits = (drawn[:, None] >> np.arange(32)) & 1
    five = 5 * 0.5 / math.sqrt(count)
    assert np.abs(bits.mean(0) - 0.5).max() < five  # each bit is set half of the time
    assert np.abs((bits[1:] == bits[:-1]).mean(0) - 0.5).max() < five  # whatever it was one number before
    assert np.abs(np.corrcoef(bits.T) - np.eye(32)).max() < 2 * five  # and whatever the other bits are
    for shift in (0, 8, 16, 24):
        seen = np.bincount((drawn >> shift) & 255, minlength=256)
        chi2 = ((seen - count / 256) ** 2 / (count / 256)).sum()
        assert abs(chi2 - 255) < 5 * math.sqrt(2 * 255)
    for apart in (1, 2, 3, 5, 7, 38, 48, 100, *(1 << power for power in range(3, 15))):  # nor at a distance
        pairs = np.bincount((drawn[apart:] >> 26) * 64 + (drawn[:-apart] >> 26), minlength=4096)
        expected = (count - apart) / 4096
        assert abs(((pairs - expected) ** 2 / expected).sum() - 4095) < 5 * math.sqrt(2 * 4095)
    for bit in range(64):  # keys that differ in one bit draw different numbers
        other = rng.bits(KEY ^ (1 << bit), 0, 4096).numpy()
        changed = ((other ^ drawn[:4096])[:, None] >> np.arange(32)) & 1
        assert abs(changed.mean() - 0.5) < 0.02
        assert abs(np.corrcoef(other, drawn[:4096])[0, 1]) < 5 / math.sqrt(4096)
    assert len(np.unique(drawn)) == count


def test_draws_do_not_depend_on_cuts_and_stay_what_they_are() -> None:
    whole = rng.bits(KEY, 0, 1000)
    assert torch.equal(torch.cat([rng.bits(KEY, 0, 333), rng.bits(KEY, 333, 667)]), whole)
    assert float(rng.uniforms(KEY, 0, 100_000).max()) < 1
    assert whole[:4].tolist() == EXPECTED


@pytest.mark.parametrize("numel", [1, 2, 3, 5, 100, 1000, 4097])
def test_a_permutation_has_each_number_once(numel: int) -> None:
    for key in range(20):
        assert sorted(rng.permutation(0, numel, numel, rng.splitmix64(key)).tolist()) == list(range(numel))


def test_every_pair_is_drawn_equally_often() -> None:
    numel, count, turns = 50, 10, 3_000
    pairs = torch.zeros(numel, numel)
    for key in range(turns):
        lots = rng.permutation(0, count, numel, rng.splitmix64(key))
        pairs[lots[:, None], lots[None]] += 1
    mean = turns * count * (count - 1) / (numel * (numel - 1))
    misses = (pairs[~torch.eye(numel, dtype=torch.bool)] - mean) / mean**0.5
    assert 0.9 < float(misses.std()) < 1.1 and float(misses.abs().max()) < 5
