"""Bytes packed without loss: all comes back, and what others send takes no memory and crashes nothing."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tweed.elastic.packing import pack, unpack
from tweed.errors import DataError
from tweed.exchange.encoding import as_bytes

NUMEL = 1 << 14


def of(tensor: Tensor) -> bytes:
    return bytes(as_bytes(tensor))


@given(st.binary(max_size=300), st.integers(0, 500))
def test_all_comes_back(data: bytes, zeros: int) -> None:
    whole = data + bytes(zeros)
    packed = pack(whole)
    assert packed is None or (len(packed) < len(whole) and unpack(packed, len(whole)) == whole)


@pytest.mark.parametrize(
    ("tensor", "most"),
    [
        (torch.zeros(NUMEL), 0.01),
        (torch.randn(NUMEL, generator=torch.Generator().manual_seed(1)) * 0.05, 0.9),
        (torch.randn(2 * NUMEL, generator=torch.Generator().manual_seed(1)).bfloat16(), 0.85),
    ],
)
def test_numbers_become_shorter(tensor: Tensor, most: float) -> None:
    data = of(tensor)
    packed = pack(data)
    assert packed is not None and len(packed) < most * len(data) and unpack(packed, len(data)) == data


def test_noise_stays_as_it_is() -> None:
    noise = torch.randint(0, 256, (1 << 16,), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    assert pack(of(noise)) is None


@given(st.binary(max_size=200), st.integers(0, 100), st.integers(0, 255))
def test_what_is_damaged_is_an_error_or_other_bytes_and_never_longer(
    data: bytes, at: int, value: int
) -> None:
    good = pack(bytes(4000))
    assert good is not None
    for bad in (data, good[:at] + bytes([value]) + good[at + 1 :], good[:at]):
        try:
            assert len(unpack(bad, 4000)) <= 4000
        except DataError:
            continue


def test_what_would_take_more_memory_than_it_may_is_refused() -> None:
    packed = pack(bytes(1 << 20))
    assert packed is not None
    with pytest.raises(DataError, match="too many bytes"):
        unpack(packed, 1 << 16)
