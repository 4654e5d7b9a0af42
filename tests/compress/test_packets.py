"""Packets cross as bytes and in pieces; what is damaged is found, or does no harm."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.compress.table import SPEC, TABLE, Encoder, gaussian
from tweed.compress import Codec, Entries, Packet, Values, unpack
from tweed.errors import DataError

WITH_PACKETS = [method for method in TABLE if not method.sums]
every_packet = pytest.mark.parametrize("method", WITH_PACKETS, ids=repr)
BOUNDS = st.lists(st.integers(0, SPEC.numel // 64), max_size=5).map(
    lambda places: [0, *sorted(64 * place for place in places), SPEC.numel]
)


def encoded(method: Codec) -> tuple[Packet, Tensor]:
    encoder = Encoder(method)
    sent = encoder.encode(gaussian())
    assert encoder.packet is not None
    return encoder.packet, sent


def decoded(data: Tensor, numel: int) -> Tensor:
    out = torch.zeros(numel)
    packet = unpack(data, numel)
    if packet is not None:
        assert packet.numel == numel
        packet.add_to(out)
    return out


@every_packet
@given(bounds=BOUNDS)
def test_pieces_stand_for_what_the_whole_does(method: Codec, bounds: list[int]) -> None:
    packet, sent = encoded(method)
    pieces = packet.cut(bounds)
    parts = [decoded(piece.pack(), piece.numel) for piece in pieces]
    assert [piece.numel for piece in pieces] == [high - low for low, high in pairwise(bounds)]
    assert torch.equal(torch.cat(parts), sent)


@every_packet
def test_pieces_of_pieces_are_pieces(method: Codec) -> None:
    packet, sent = encoded(method)
    middle = unpack(packet.cut([0, 192, 1984, SPEC.numel])[1].pack(), 1792)
    assert middle is not None
    piece = middle.cut([0, 64, 1088, 1792])[1]
    assert torch.equal(decoded(piece.pack(), 1024), sent[256:1280])


@every_packet
def test_bytes_may_begin_anywhere(method: Codec) -> None:
    packet, sent = encoded(method)
    data = packet.pack()
    for begin in range(1, 5):
        moved = torch.cat([data.new_zeros(begin), data])[begin:]
        assert torch.equal(decoded(moved, SPEC.numel), sent)


@every_packet
@given(st.data())
def test_damaged_bytes_are_refused_or_do_no_harm(method: Codec, data: st.DataObject) -> None:
    bytes_ = encoded(method)[0].pack()
    where = st.integers(0, 20) | st.integers(0, len(bytes_) - 1)
    for place, value in data.draw(st.lists(st.tuples(where, st.integers(0, 255)), max_size=4)):
        bytes_[place] = value
    length = data.draw(st.sampled_from([len(bytes_), len(bytes_) + 1]) | st.integers(0, len(bytes_)))
    damaged = torch.cat([bytes_, bytes_.new_zeros(1)])[:length]
    try:
        decoded(damaged, SPEC.numel)
    except DataError as error:
        assert "came in" in str(error)


@every_packet
def test_a_packet_about_more_numbers_is_refused(method: Codec) -> None:
    packet = encoded(method)[0]
    if isinstance(packet, Entries) and int(packet.indices[-1]) < SPEC.numel - 64:
        pytest.skip("entries do not hold of how many they are")
    with pytest.raises(DataError, match="came in"):
        unpack(packet.pack(), SPEC.numel - 64)


@given(st.binary(max_size=64), st.integers(0, 200))
def test_noise_is_refused_or_does_no_harm(noise: bytes, numel: int) -> None:
    try:
        decoded(torch.tensor(list(noise), dtype=torch.uint8), numel)
    except DataError as error:
        assert "came in" in str(error)


def test_no_bytes_send_nothing() -> None:
    assert unpack(torch.empty(0, dtype=torch.uint8), 7) is None


def test_numbers_keep_every_bit() -> None:
    value = gaussian()
    assert torch.equal(decoded(Values(value, SPEC.numel).pack(), SPEC.numel), value)
