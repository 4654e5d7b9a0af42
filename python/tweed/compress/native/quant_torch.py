"""Codes of a few bits in plain torch, for any device; bit for bit what the native kernels do.

Sums of a block are taken in this order. The block is cut into runs of 1024 values, the rest filled up with
zeros. In a run, 32 lanes: lane `j` adds up the values `j`, `j + 32`, `j + 64` and so on: their squares, in
float64 (where they are exact: a fused multiplication changes nothing); or their magnitudes over 4096, in
float32 (where they do not overflow). Then, in float64, lanes are added in halves: 16 and 16, 8 and 8, 4 and
4, 2 and 2, 1 and 1. Then runs are added in pairs of neighbours, pairs of pairs, and so on.

Divisions are of tensors by tensors: torch multiplies by the inverse where one side is a Python number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tweed.compress.native.form import LARGEST, SMALLEST, Form
from tweed.rng import uniforms

if TYPE_CHECKING:
    from torch import Tensor

LANES, RUN = 32, 1024
#: About so many values at a time: what is between is several times as large as they are.
SLAB = 1 << 22


def encode(x: Tensor, form: Form, key: int | None, error: Tensor | None) -> tuple[Tensor, Tensor]:
    """Writes `x` in a few bits per value, as `quant.encode` does, one slab at a time; eight blocks end with a
    byte."""
    if not x.numel():
        return x.new_empty(0), x.new_empty(0, dtype=torch.uint8)
    slab = form.block * 8 * max(1, SLAB // (8 * form.block))
    cuts = [slice(at, at + slab) for at in range(0, x.numel(), slab)]
    parts = [_encode(x[cut], form, key, cut.start, None if error is None else error[cut]) for cut in cuts]
    scales, codes = zip(*parts, strict=True)
    return torch.cat(scales), torch.cat(codes)


def _encode(
    x: Tensor, form: Form, key: int | None, start: int, error: Tensor | None
) -> tuple[Tensor, Tensor]:
    v = x if error is None else error.add_(x)
    scales = _scales(v, form)
    if form.scheme == "sign":
        whole = torch.signbit(v).long()
    else:
        inverse = torch.where(scales > 0, torch.full_like(scales, form.levels) / scales, 0.0)
        t = v * _spread(inverse, form, 0, len(v))
        q = t.round() if key is None else (t + uniforms(key, start, len(t), t.device)).floor()
        whole = form.levels + q.clamp(-form.levels, form.levels).long()
    if error is not None:
        error.sub_(_decoded(whole, scales, form, 0))
    return scales, pack(whole, form.bits)


def decode_add(out: Tensor, scales: Tensor, codes: Tensor, form: Form, first: int) -> None:
    """Adds the values that codes stand for to `out`, as `quant.decode_add` does."""
    for at in range(0, out.numel(), SLAB):
        part = out[at : at + SLAB]
        whole = unpack(codes[at * form.bits // 8 :], form.bits, part.numel())
        block, place = divmod(first + at, form.block)
        part.add_(_decoded(whole, scales[block:], form, place))


def _decoded(whole: Tensor, scales: Tensor, form: Form, first: int) -> Tensor:
    """The values that codes stand for."""
    if form.scheme == "sign":
        scale = _spread(scales, form, first, len(whole))
        return torch.where(whole > 0, -scale, scale)
    step = scales / torch.full_like(scales, form.levels)
    return (whole - form.levels).float() * _spread(step, form, first, len(whole))


def _spread(scales: Tensor, form: Form, first: int, count: int) -> Tensor:
    """The scale of each value, from the scale of its block."""
    return scales[: form.scale_count(count, first)].repeat_interleave(form.block)[first : first + count]


def _scales(v: Tensor, form: Form) -> Tensor:
    blocks = form.scale_count(len(v))
    short = blocks * form.block - len(v)
    rows = torch.nn.functional.pad(v.abs(), (0, short)).view(blocks, form.block)
    if form.scheme == "uniform":
        scales = rows.amax(1)
    elif form.scheme == "levels":
        scales = _sums(rows.double().square_()).sqrt_().float()
    else:
        counts = torch.full((blocks,), form.block, dtype=torch.float64, device=v.device)
        counts[-1:] -= short
        scales = (_sums(rows * (1 / 4096)) * 4096 / counts).float()
    return torch.where(scales < SMALLEST, 0.0, scales.clamp(max=LARGEST))


def _sums(rows: Tensor) -> Tensor:
    """The sum of each row, `[blocks, numel]` to `[blocks]`, in the order written above."""
    blocks, numel = rows.shape
    run = min(RUN, -(-numel // LANES) * LANES)
    rows = torch.nn.functional.pad(rows, (0, -numel % run)).view(blocks, -1, run // LANES, LANES)
    lanes = rows[:, :, 0].clone()
    for row in range(1, run // LANES):
        lanes += rows[:, :, row]
    lanes = lanes.double()
    for half in (16, 8, 4, 2, 1):
        lanes = lanes[..., :half] + lanes[..., half:]
    runs = lanes[..., 0]
    while runs.shape[1] > 1:
        runs = torch.nn.functional.pad(runs, (0, runs.shape[1] % 2))
        runs = runs[:, 0::2] + runs[:, 1::2]
    return runs[:, 0]


def pack(whole: Tensor, bits: int) -> Tensor:
    """Codes, `[count]` int64 below `2^bits`, as a stream of bits: `[ceil(count * bits / 8)]` uint8."""
    length = -(-len(whole) * bits // 8)
    eights = torch.nn.functional.pad(whole, (0, -len(whole) % 8)).view(-1, 8)
    words = (eights << _shifts(8, bits, whole)).sum(1)
    return ((words[:, None] >> _shifts(bits, 8, whole)) & 255).to(torch.uint8).view(-1)[:length]


def unpack(codes: Tensor, bits: int, count: int) -> Tensor:
    """The first `count` codes of a stream: `[count]` int64."""
    taken = codes[: -(-count * bits // 8)].long()
    words = torch.nn.functional.pad(taken, (0, -len(taken) % bits)).view(-1, bits)
    words = (words << _shifts(bits, 8, taken)).sum(1)
    whole: Tensor = ((words[:, None] >> _shifts(8, bits, taken)) & (2**bits - 1)).view(-1)[:count]
    return whole


def _shifts(count: int, by: int, like: Tensor) -> Tensor:
    return torch.arange(0, count * by, by, device=like.device)
