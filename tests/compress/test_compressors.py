"""One table for the stage's codecs: what each promises, it keeps.

Packets cross as bytes and in pieces; what is damaged is found, or does no harm.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import tweed.compress
from tests.compress.table import EXACT, SPEC, TABLE, Encoder, gaussian
from tweed.compress import (
    Codec,
    Compressor,
    Entries,
    Half,
    LowRank,
    Packet,
    RandomTensors,
    Rounds,
    Spec,
    Threshold,
    Values,
    unpack,
)
from tweed.compress.native import quant, quant_torch, sparse
from tweed.errors import DataError

BIG = Spec(((200, 150), (32, 16, 3, 3), (500,), (900, 25)))
every_method = pytest.mark.parametrize("method", TABLE, ids=repr)
#: Those that send a packet; the others, in several sums, are in test_memories.
PACKED = [method for method in TABLE if not isinstance(method, Rounds)]


def worst(method: Codec) -> list[Tensor]:
    """Buffers on which methods do badly."""
    one = torch.zeros(SPEC.numel)
    one[1234] = 1.0
    signs = gaussian().sign()
    levels = (2 ** (getattr(method, "bits", 8) - 1)) - 1
    halves = torch.full((SPEC.numel,), 0.499 / max(1, levels))
    halves[:: getattr(method, "block", None) or SPEC.numel] = 1.0
    return [gaussian(), gaussian(seed=1) ** 5, one, signs, halves]


@every_method
def test_it_keeps_the_contract(method: Codec) -> None:
    assert isinstance(method, Codec)
    assert isinstance(method, Compressor) != isinstance(method, Rounds)
    assert isinstance(method.reply_codec, Compressor | None)
    assert eval(repr(method), vars(tweed.compress)) == method
    assert hash(method) == hash(replace(method))  # type: ignore[type-var]


@every_method
def test_its_error_stays_within_the_bound(method: Codec) -> None:
    bound = method.error_bound(SPEC)
    for value in worst(method):
        encoder, whole = Encoder(method), value.double().square().sum()
        errors = torch.tensor([0.0] * 40, dtype=torch.float64)
        for turn in range(len(errors)):
            if isinstance(method, LowRank):  # its bound is that of the first turn
                encoder = Encoder(replace(method, seed=turn))
            errors[turn] = (encoder.encode(value) - value).double().square().sum() / whole
        chance = float(errors.std()) / math.sqrt(len(errors))
        assert float(errors.mean()) <= bound * (1 + 1e-5) + 3 * chance + 1e-12


@every_method
def test_its_bytes_are_those_of_the_formula(method: Codec) -> None:
    bytes_, drawn = [], method.sums or isinstance(method, RandomTensors)
    for turn in range(60 if drawn else 3):
        encoder = Encoder(method, BIG)
        encoder.step = 10 + turn  # the last stage of those that have some
        encoder.encode(gaussian(BIG, seed=turn % 3))
        bytes_.append(encoder.packet_bytes)
    mean, formula = sum(bytes_) / len(bytes_), method.packet_bytes(BIG)
    chance = float(torch.tensor(bytes_).std()) / math.sqrt(len(bytes_)) if drawn else 0.0
    assert abs(mean - formula) <= 0.01 * formula + 3 * chance


@pytest.mark.parametrize("method", [method for method in TABLE if method.unbiased], ids=repr)
def test_the_mean_of_what_is_sent_is_the_input(method: Codec) -> None:
    value, turns = gaussian(), 400
    directions = torch.randn(3, SPEC.numel, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    encoder = Encoder(method)
    misses = torch.stack([directions @ (encoder.encode(value) - value).double() for _ in range(turns)])
    rounding = 1e-6 * float(directions.norm())
    assert bool((misses.mean(0).abs() <= 3 * misses.std(0) / math.sqrt(turns) + rounding).all())


@every_method
def test_what_is_sent_and_what_is_left_is_all(method: Codec) -> None:
    encoder, error = Encoder(method), torch.zeros(SPEC.numel)
    for step in range(5):
        value = gaussian(seed=step)
        whole = value + error
        sent = encoder.encode(value, error)
        if method in EXACT:
            assert torch.equal(sent + error, whole)
        else:
            scale = float(whole.abs().max().clamp(min=float(sent.abs().max())))
            assert torch.allclose(sent + error, whole, rtol=0, atol=4e-7 * scale)
        error.mul_(0.5)  # keeps those that leave more than they were given from growing


@pytest.mark.parametrize("method", [method for method in PACKED if method.sums], ids=repr)
def test_sums_of_packets_send_sums(method: Codec) -> None:
    encoders = [Encoder(method, rank=rank, size=3) for rank in range(3)]
    sent = [encoder.encode(gaussian(seed=rank)) for rank, encoder in enumerate(encoders)]
    first, *others = (encoder.packet for encoder in encoders)
    out = torch.zeros(SPEC.numel)
    replace(first, values=sum((other.values for other in others), start=first.values)).add_to(out)
    accuracy = 0.02 if isinstance(method, Half) else 1e-6
    assert torch.allclose(out, sent[0] + sent[1] + sent[2], rtol=accuracy, atol=accuracy)


ONE, NONE, SCALAR = Spec(((1,),)), Spec(((0,),)), Spec(((), (0, 5), (3,)))
_BAD = {
    "zeros": torch.zeros(SPEC.numel), "denormal": gaussian() * 1e-41, "tiny": gaussian() * 1e-37,
    "huge": gaussian().clamp(-3, 3) * 1e38, "largest": gaussian().sign() * 3e38,
    "one huge": torch.cat([torch.tensor([3e38]), torch.zeros(SPEC.numel - 1)]),
}  # fmt: skip


@every_method
@pytest.mark.parametrize("name", _BAD)
def test_finite_numbers_stay_finite(method: Codec, name: str) -> None:
    encoder, error = Encoder(method, size=4), torch.zeros(SPEC.numel)
    for _ in range(2):
        sent = encoder.encode(_BAD[name], error)
        assert bool(sent.isfinite().all()) and bool(error.isfinite().all())
        largest = float(_BAD[name].abs().max())
        unscaled = not getattr(method, "scaled", False)
        assert not unscaled or torch.allclose(sent + error, _BAD[name], rtol=1e-5, atol=1e-5 * largest)
        error.zero_()


@every_method
@pytest.mark.parametrize("spec", [ONE, NONE, SCALAR], ids=["one", "none", "scalar"])
def test_small_buffers_are_buffers(method: Codec, spec: Spec) -> None:
    encoder, error = Encoder(method, spec), torch.zeros(spec.numel)
    for step in range(3):
        value = gaussian(spec, seed=step)
        assert torch.allclose(encoder.encode(value, error) + error, value, atol=1e-5)
        error.zero_()
    assert 0 <= method.packet_bytes(spec) < 100 and method.error_bound(spec) >= 0


@every_method
def test_its_state_survives_storage(method: Codec) -> None:
    straight, stored = Encoder(method), Encoder(method)
    for step in range(6):
        value = gaussian(seed=step)
        state = stored.state
        if state is not None:
            stored.state = type(state)(**{field.name: getattr(state, field.name) for field in fields(state)})
        errors = torch.ones(SPEC.numel), torch.ones(SPEC.numel)
        assert torch.equal(straight.encode(value, errors[0]), stored.encode(value, errors[1]))
        assert torch.equal(*errors)


@every_method
def test_equal_turns_send_the_same_bits(method: Codec) -> None:
    first, second = Encoder(method), Encoder(method)
    first.step = second.step = 7
    assert torch.equal(first.encode(gaussian()), second.encode(gaussian()))


@pytest.mark.parametrize("method", PACKED, ids=repr)
def test_native_and_torch_send_the_same_bits(method: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    native, errors = Encoder(method), (gaussian(seed=5), gaussian(seed=5))
    sent = native.encode(gaussian(), errors[0])
    monkeypatch.setattr(sparse, "_native", lambda *_: False)
    monkeypatch.setattr(quant, "encode", quant_torch.encode)
    monkeypatch.setattr(quant, "decode_add", quant_torch.decode_add)
    plain = Encoder(method)
    assert torch.equal(plain.encode(gaussian(), errors[1]), sent)
    assert torch.equal(*errors)
    if not method.sums:
        assert native.packet is not None and plain.packet is not None
        assert torch.equal(native.packet.pack(), plain.packet.pack())


@pytest.mark.parametrize("method", [method for method in TABLE if method.sums], ids=repr)
def test_ranks_that_add_up_send_of_the_same_numbers(method: Codec) -> None:
    sent = [Encoder(method, rank=rank, size=2).encode(gaussian()) for rank in range(2)]
    assert torch.equal(*sent)


def test_thresholds_live_on() -> None:
    encoder = Encoder(Threshold(0.05, lifespan=4))
    taus = []
    for step in range(9):
        encoder.encode(gaussian(seed=step))
        taus.append(encoder.state.taus)
    assert all(torch.equal(taus[step], taus[step - step % 4]) for step in range(9))
    assert not torch.equal(taus[0], taus[4]) and not torch.equal(taus[4], taus[8])


every_packet = pytest.mark.parametrize("method", [method for method in TABLE if not method.sums], ids=repr)
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_numbers_keep_every_bit(dtype: torch.dtype) -> None:
    value = gaussian().to(dtype)
    data = Values(value, SPEC.numel).pack()
    assert len(data) == 16 + value.nbytes
    assert torch.equal(decoded(data, SPEC.numel), value.float())
    for coding in (3, 255):
        data[1] = coding
        with pytest.raises(DataError, match="came in"):
            unpack(data, SPEC.numel)
