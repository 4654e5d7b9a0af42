"""`Auto` as a memory: the residual is kept from choice to choice, and goes whole when compression ends."""

from __future__ import annotations

import pytest
import torch

from tests.compress.group import Group
from tweed.compress import Auto, Half, Quantise, RandomK, Spec, TopK
from tweed.compress.auto import wire_bytes
from tweed.errors import StrategyError

SPEC = Spec(((1000,),))


def test_the_total_said_and_owed_is_the_total_given_whatever_the_way() -> None:
    choices = (Half(), Quantise(8, nearest=True, both_ways=False), TopK(0.1), TopK(0.01))
    memory, chance = Auto(choices), torch.Generator().manual_seed(0)
    together = Group(memory, SPEC, 3)
    given, said = torch.zeros(1000), torch.zeros(1000)
    for choice in (4, 3, 1, 0, 2, 4, 0):
        values = [torch.randn(1000, generator=chance) for _ in range(3)]
        given += sum(values) / 3
        for buffer in together.buffers:
            buffer.state.choice = choice
        said += together.exchange(values)[0].delta
    torch.testing.assert_close(said, given, rtol=0, atol=0.01)  # sums of 16 bits
    assert all(not buffer.state.error.any() for buffer in together.buffers)


def test_a_candidate_whose_rest_would_grow_is_refused() -> None:
    with pytest.raises(StrategyError, match="auto does not go with RandomK"):
        Auto((RandomK(0.01, scaled=True),))


def test_bytes_on_the_wire_follow_from_the_way_packets_go() -> None:
    assert wire_bytes(Half(), SPEC, 4) == 1.5 * Half().packet_bytes(SPEC)
    quantised = Quantise(bits=8, nearest=True)
    assert wire_bytes(quantised, SPEC, 4) == 1.5 * quantised.packet_bytes(SPEC)
    few = TopK(0.01)
    assert wire_bytes(few, SPEC, 4) == 0.75 * 5 * few.packet_bytes(SPEC)
    assert wire_bytes(TopK(0.9), SPEC, 4) == 0.75 * (TopK(0.9).packet_bytes(SPEC) + 4000)


def test_ways_go_from_many_bytes_to_few() -> None:
    autotuner = Auto().autotuner([Spec(((100_000, 10),)), Spec(((10_000,),))], 4)
    assert list(autotuner.wire_bytes) == sorted(autotuner.wire_bytes, reverse=True)
