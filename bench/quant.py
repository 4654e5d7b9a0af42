"""Codes of a few bits: the kernels beside a copy past the cache, and beside what others do. One core."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

from bench import example
from bench.run import Row, least_s
from bench.units import digits, grid, seconds
from tweed.compress.base import Spec, Turn
from tweed.compress.low_rank import LowRank
from tweed.compress.native import quant

#: Of the copy's rate, at least.
GOAL = 0.55
PEERS, KERNELS = "quantising beside others", "quantising kernels"
NUMEL, BLOCK = 25_000_000, 1024
COPY = "copy, streaming"


def rows() -> Iterator[Row]:
    """Both measurements; the second needs cargo."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield from _peers()
    torch.set_num_threads(threads)
    yield from (figure.row(KERNELS) for figure in example.figures(example.output("quant")))


class Side(NamedTuple):
    """Who does the job `of`; `decode` is None where encoding ends with what is said."""

    of: str
    side: str
    encode: Callable[[], object]
    decode: Callable[[], object] | None
    calls: int = 5


def _peers() -> Iterator[Row]:
    x = torch.randn(NUMEL, generator=torch.Generator().manual_seed(1))
    for side in (*_eight_bits(x), *_low_rank()):
        print(f"  {side.of}, {side.side}", file=sys.stderr, flush=True)
        row = {"part": PEERS, "of": side.of, "side": side.side, "encode_s": least_s(side.encode, side.calls)}
        yield row | ({"decode_s": least_s(side.decode, side.calls)} if side.decode else {})


def _eight_bits(x: Tensor) -> Iterator[Side]:
    """To eight bits per number and back to float32. Ours has a scale per block, the others one for all."""
    form, out = quant.Form("uniform", 8, BLOCK), torch.zeros_like(x)
    ours = quant.encode(x, form)
    yield Side("8 bits", "tweed", partial(quant.encode, x, form), lambda: _decoded(out, ours, form))
    theirs = _quantised(x)
    yield Side("8 bits", "torch.quantize_per_tensor", lambda: _quantised(x), theirs.dequantize)
    codes, book = uniform_8_bit(x)
    yield Side("8 bits", "hivemind", lambda: uniform_8_bit(x), lambda: book[codes.long()], calls=2)


def _decoded(out: Tensor, written: tuple[Tensor, Tensor], form: quant.Form) -> Tensor:
    out.zero_()
    quant.decode_add(out, *written, form)
    return out


def _quantised(x: Tensor) -> Tensor:
    """The largest magnitude has to be found first."""
    return torch.quantize_per_tensor(x, float(x.abs().max()) / 127, 0, torch.qint8)


def uniform_8_bit(x: Tensor) -> tuple[Tensor, Tensor]:
    """The sums of hivemind's `Uniform8BitQuantization`, in our words: 256 steps over six deviations about the
    mean, and for each step the mean of the numbers that fell on it.

    hivemind itself is not run: its package fetches a daemon, and this is all that its codec asks of torch.

    Returns: codes, uint8, and the code book, float32.
    """
    centred = x - x.mean()
    step = 6 * centred.norm() / math.sqrt(len(x) - 1) / 256
    codes = torch.quantize_per_tensor(centred, step, 128, torch.quint8).int_repr()
    sums = torch.zeros(256).scatter_add_(0, codes.long(), x)
    return codes, sums / torch.bincount(codes, minlength=256).clamp_(min=1)


def _low_rank() -> Iterator[Side]:
    """A step of rank 4 for a square matrix, with error feedback; one rank's means stand for all-reduces."""
    matrix = torch.randn(4096, 4096, generator=torch.Generator().manual_seed(2))
    yield Side("low rank, 4", "tweed", Ours(matrix, 4).step, None)
    yield Side("low rank, 4", "torch's PowerSGD hook", Hook(matrix, 4).step, None)


class Ours:
    """`LowRank` alone with one matrix."""

    def __init__(self, matrix: Tensor, rank: int) -> None:
        self._matrix, self._by, self._turn = matrix, LowRank(rank), Turn(Spec((tuple(matrix.shape),)))
        self._error, self._out = torch.zeros(matrix.numel()), torch.zeros(matrix.numel())
        self._state = self._by.start(self._turn.spec)

    def step(self) -> None:
        self._out.zero_()
        value = self._matrix.reshape(-1).clone()
        rounds = self._by.rounds(value, self._state, self._turn, self._out, self._error)
        mean = next(rounds)
        try:
            while True:
                mean = rounds.send(mean)
        except StopIteration as end:
            self._state = end.value


class Hook:
    """What torch's PowerSGD hook does with one matrix between its all-reduces and after, in that order."""

    def __init__(self, matrix: Tensor, rank: int) -> None:
        self._matrix = matrix[None]
        self._error = torch.zeros_like(self._matrix)
        self._q = torch.randn(1, matrix.shape[1], rank, generator=torch.Generator().manual_seed(3))

    def step(self) -> None:
        tensor = self._matrix.clone()
        given = tensor.add_(self._error).clone()
        powerSGD_hook._orthogonalize(self._q)
        p = torch.bmm(tensor, self._q)
        powerSGD_hook._orthogonalize(p)
        torch.bmm(tensor.transpose(1, 2), p, out=self._q)
        torch.bmm(p, self._q.transpose(1, 2), out=tensor)
        self._error = given.sub_(tensor)


def kernels(rows: Sequence[Row]) -> str:
    """Rates, and what share of the copy's they are; the copy is measured before the kernels of each form."""
    found = [row for row in rows if row["part"] == KERNELS]
    copies = {row["of"]: row["gb_per_s"] for row in found if row["side"] == COPY}
    body = []
    for row in found:
        share = row["gb_per_s"] / copies[row["of"]]
        mark = "" if row["side"] == COPY else "yes" if share >= GOAL else "**no**"
        body.append(
            (row["of"], row["side"], seconds(row["least_s"]), digits(row["gb_per_s"]), f"{share:.2f}", mark)
        )
    head = ("of", "work", "best call", "GB/s", "of the copy's rate", f"reaches {GOAL:g}")
    return f"## Codes of a few bits, one core\n\n{grid(head, body)}" if body else ""


def beside(rows: Sequence[Row]) -> str:
    """By job: how long each side takes, and how many times as long as ours."""
    found = [row for row in rows if row["part"] == PEERS]
    ours = {row["of"]: row for row in found if row["side"] == "tweed"}
    body = [
        (row["of"], row["side"], *(_beside(row, ours[row["of"]], what) for what in ("encode_s", "decode_s")))
        for row in found
    ]
    head = ("of", "side", "encode", "decode")
    return f"## Codes of a few bits beside others, one core\n\n{grid(head, body)}" if body else ""


def _beside(row: Row, ours: Row, what: str) -> str:
    return f"{seconds(row[what])}, {digits(row[what] / ours[what])}x" if what in row else ""
