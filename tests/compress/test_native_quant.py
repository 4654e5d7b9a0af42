"""Codes of a few bits: what they stand for, and that nothing is lost beside them."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tweed.compress.native import quant, quant_torch
from tweed.compress.native.form import SCHEMES, Form
from tweed.errors import UsageError

KEY = 0x9E3779B97F4A7C15
FORMS = [
    Form("sign", 1, 64), Form("sign", 1, 35), Form("uniform", 8, 64), Form("uniform", 4, 100),
    Form("uniform", 2, 2048), Form("uniform", 5, 7), Form.of_levels(1, 35), Form.of_levels(4, 128),
    Form.of_levels(127, 1500),
]  # fmt: skip
INPUTS = {
    "gaussian": lambda count: torch.randn(count, generator=torch.Generator().manual_seed(1)),
    "zeros": torch.zeros,
    "minus zeros": lambda count: -torch.zeros(count),
    "denormal": lambda count: torch.full((count,), 1e-42),
    "huge": lambda count: torch.full((count,), -1e38).index_fill_(0, torch.arange(0, count, 3), 3.4e38),
    "one large": lambda count: torch.zeros(count).index_fill_(0, torch.arange(0, min(count, 1)), -5.0),
}


def decoded(scales: torch.Tensor, codes: torch.Tensor, form: Form, numel: int) -> torch.Tensor:
    out = torch.zeros(numel)
    quant.decode_add(out, scales, codes, form)
    return out


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and bool((a.view(torch.uint8) == b.view(torch.uint8)).all())


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("name", INPUTS)
def test_what_is_sent_and_what_is_left_is_what_was_given(name: str, form: Form) -> None:
    for numel, key in itertools.product((0, 1, 63, 64, 100, 5000), (None, KEY)):
        x, error = INPUTS[name](numel), 0.1 * torch.randn(numel, generator=torch.Generator().manual_seed(2))
        given_x, given_error = x.clone(), error.clone()
        scales, codes = quant.encode(x, form, key, error)
        assert (scales.numel(), codes.numel()) == (form.scale_count(numel), form.code_bytes(numel))
        assert same_bits(x, given_x)
        assert same_bits(error, (given_error + x) - decoded(scales, codes, form, numel))
        assert bool(error.isfinite().all()) and bool(scales.isfinite().all())


@given(
    st.sampled_from(SCHEMES),
    st.integers(2, 8),
    st.integers(1, 3000),
    st.integers(0, 9000),
    st.none() | st.integers(0, 2**64 - 1),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_the_native_way_and_torchs_give_the_same_bits(
    scheme: str, bits: int, block: int, numel: int, key: int | None, fed: bool, seed: int
) -> None:
    form = Form(scheme, 1 if scheme == "sign" else bits, block)
    numbers = torch.Generator().manual_seed(seed)
    x, error = (10 ** (3 * torch.randn(numel, generator=numbers)) for _ in range(2))
    x *= torch.randn(numel, generator=numbers)
    ours, theirs = (error.clone(), error.clone()) if fed else (None, None)
    native, plain = quant.encode(x, form, key, ours), quant_torch.encode(x, form, key, theirs)
    assert all(map(same_bits, native, plain))
    assert not fed or same_bits(ours, theirs)
    first = seed % block if numel < 100 else 0
    scales = torch.rand(form.scale_count(numel, first), generator=numbers) if first else native[0]
    ours, theirs = error.clone(), error.clone()
    quant.decode_add(ours, scales, native[1], form, first)
    quant_torch.decode_add(theirs, scales, native[1], form, first)
    assert same_bits(ours, theirs)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_scales_are_those_of_the_form(form: Form) -> None:
    x = INPUTS["gaussian"](1000)
    scales, _ = quant.encode(x, form, KEY)
    blocks = x.double().split(form.block)
    norm = torch.linalg.vector_norm
    of = {"sign": lambda v: v.abs().mean(), "uniform": lambda v: v.abs().max(), "levels": norm}[form.scheme]
    assert torch.allclose(scales.double(), torch.stack([of(block) for block in blocks]), rtol=1e-5)


@pytest.mark.parametrize("form", [form for form in FORMS if form.scheme != "sign"], ids=str)
@pytest.mark.parametrize("key", [None, KEY])
def test_no_number_is_further_off_than_a_step(form: Form, key: int | None) -> None:
    x = INPUTS["gaussian"](5000)
    scales, codes = quant.encode(x, form, key)
    step = (scales / form.levels).repeat_interleave(form.block)[: len(x)]
    most = step * (0.5 if key is None else 1) * (1 + 1e-4)
    assert bool(((x - decoded(scales, codes, form, len(x))).abs() <= most).all())


@pytest.mark.parametrize("form", [form for form in FORMS if form.scheme != "sign"], ids=str)
def test_chance_rounds_without_bias(form: Form) -> None:
    x, draws = INPUTS["gaussian"](40), 5000
    form = dataclasses.replace(form, block=40)
    sent = decoded(*quant.encode(x.repeat(draws), form, KEY), form, 40 * draws).view(draws, 40).double()
    spread = sent.std(0) / math.sqrt(draws)
    off = (sent.mean(0) - x).abs()
    assert bool((off <= 4.5 * spread + 1e-6).all())


@given(st.integers(1, 8), st.lists(st.integers(0, 255), max_size=70))
def test_packing_keeps_codes(bits: int, numbers: list[int]) -> None:
    whole = torch.tensor([number % 2**bits for number in numbers], dtype=torch.int64)
    packed = quant_torch.pack(whole, bits)
    assert packed.numel() == -(-len(numbers) * bits // 8)
    assert quant_torch.unpack(packed, bits, len(numbers)).tolist() == whole.tolist()
    stream = "".join(f"{code:0{bits}b}"[::-1] for code in whole.tolist())
    assert "".join(f"{byte:08b}"[::-1] for byte in packed.tolist())[: len(stream)] == stream


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_pieces_stand_for_what_the_whole_does(form: Form) -> None:
    x = INPUTS["gaussian"](1000)
    scales, codes = quant.encode(x, form, KEY)
    whole, pieces = decoded(scales, codes, form, 1000), torch.zeros(1000)
    for low, high in ((0, 64), (64, 640), (640, 1000)):
        block, first = divmod(low, form.block)
        of_piece = scales[block : block + form.scale_count(high - low, first)]
        bits = codes[low * form.bits // 8 : low * form.bits // 8 + form.code_bytes(high - low)]
        quant.decode_add(pieces[low:high], of_piece, bits, form, first)
    assert same_bits(whole, pieces)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_slabs_of_the_torch_path_leave_no_seam(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    x = INPUTS["gaussian"](20_000)
    whole = quant_torch.encode(x, form, KEY, None)
    sent = torch.zeros_like(x)
    quant_torch.decode_add(sent, *whole, form, 0)
    monkeypatch.setattr(quant_torch, "SLAB", 64)
    assert all(map(same_bits, quant_torch.encode(x, form, KEY, None), whole))
    again = torch.zeros_like(x)
    quant_torch.decode_add(again, *whole, form, 0)
    assert same_bits(sent, again)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (("sign", 2, 64), "no codes of 2 bits"),
        (("uniform", 9, 64), "no codes of 9 bits"),
        (("other", 8, 64), "'other'"),
        (("uniform", 8, 0), "block=0"),
        (("levels", 2, 64, 2), "2 levels"),
    ],
)
def test_a_form_that_there_is_not_is_refused(form: tuple[str, int, int], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        Form(*form)


def test_tensors_that_do_not_fit_are_refused() -> None:
    form, x = Form("uniform", 8, 64), torch.ones(100)
    scales, codes = quant.encode(x, form)
    for words, call in (
        ("float32", lambda: quant.encode(x.double(), form)),
        ("contiguous", lambda: quant.encode(x[::2], form)),
        ("give 100, in other memory", lambda: quant.encode(x, form, error=torch.ones(99))),
        ("give 100, in other memory", lambda: quant.encode(x, form, error=x)),
        ("need 2 scales and 100 bytes", lambda: quant.decode_add(x, scales[:1], codes, form)),
        ("need 3 scales", lambda: quant.decode_add(x, scales, codes, form, first=64)),
    ):
        with pytest.raises(UsageError, match=words):
            call()
