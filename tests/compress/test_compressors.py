"""One table for the stage's methods: what each promises, it keeps."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor

import tweed.compress
from tests.compress.table import EXACT, SPEC, TABLE, Encoder, gaussian
from tweed.compress import Codec, Compressor, Half, LowRank, Rounds, Spec, Threshold, Values
from tweed.compress.native import quant, quant_torch, sparse

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
    bytes_ = []
    for turn in range(60 if method.sums else 3):
        encoder = Encoder(method, BIG)
        encoder.step = turn
        encoder.encode(gaussian(BIG, seed=turn % 3))
        bytes_.append(encoder.packet_bytes)
    mean, formula = sum(bytes_) / len(bytes_), method.packet_bytes(BIG)
    chance = float(torch.tensor(bytes_).std()) / math.sqrt(len(bytes_)) if method.sums else 0.0
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
    packets = [encoder.packet for encoder in encoders]
    values = [packet.values for packet in packets if isinstance(packet, Values)]
    assert isinstance(packets[0], Values) and len(values) == 3
    out = torch.zeros(SPEC.numel)
    replace(packets[0], values=values[0] + values[1] + values[2]).add_to(out)
    accuracy = 0.02 if isinstance(method, Half) else 1e-6
    assert torch.allclose(out, sent[0] + sent[1] + sent[2], rtol=accuracy, atol=accuracy)


ONE, NONE, SCALAR = Spec(((1,),)), Spec(((0,),)), Spec(((), (0, 5), (3,)))
_BAD = {
    "zeros": torch.zeros(SPEC.numel),
    "denormal": gaussian() * 1e-41,
    "tiny": gaussian() * 1e-37,
    "huge": gaussian().clamp(-3, 3) * 1e38,
    "largest": gaussian().sign() * 3e38,
    "one huge": torch.cat([torch.tensor([3e38]), torch.zeros(SPEC.numel - 1)]),
}


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
