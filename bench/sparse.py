"""Choosing numbers: top-k beside `torch.topk`, and every kernel beside a copy past the cache. One core."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bench import example
from bench.run import Row, least_s
from bench.units import digits, grid, seconds
from tweed.compress.native import sparse

TOP_K, KERNELS = "top-k", "sparse kernels"
NUMEL, SHARE = 25_000_000, 0.01
#: The limit that rates are compared with: it moves what a kernel must move, and does nothing else.
COPY = "copy, streaming"
_CALLS = {"torch.topk": 3, "tweed": 9}


def _gaussian(seed: int) -> Tensor:
    return torch.randn(NUMEL, generator=torch.Generator().manual_seed(seed))


def _zeros() -> Tensor:
    return _gaussian(1) * (torch.rand(NUMEL, generator=torch.Generator().manual_seed(2)) < 0.005)


INPUTS: dict[str, Callable[[], Tensor]] = {
    "Gaussian": lambda: _gaussian(1),
    "heavy-tailed": lambda: _gaussian(1) * _gaussian(2).mul_(2).exp_(),
    "99.5 % zero": _zeros,
    "constant": lambda: torch.full((NUMEL,), 1.5),
    "sorted": lambda: _gaussian(1).sort().values,
}


def rows() -> Iterator[Row]:
    """Both measurements; the second needs cargo."""
    yield from _beside_torch()
    yield from (figure.row(KERNELS) for figure in example.figures(example.output("sparse")))


def _beside_torch() -> Iterator[Row]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    count = int(NUMEL * SHARE)
    for kind, make in INPUTS.items():
        print(f"  top-k, {kind}", file=sys.stderr, flush=True)
        x = make()
        magnitudes = x.abs()  # which torch.topk is given for nothing
        sides: dict[str, Callable[[], Any]] = {
            "torch.topk": partial(torch.topk, magnitudes, count, sorted=False),
            "tweed": partial(sparse.top_k, x, count),
        }
        for side, call in sides.items():
            yield {"part": TOP_K, "input": kind, "side": side, "least_s": least_s(call, _CALLS[side])}
    torch.set_num_threads(threads)


def kernels(rows: Sequence[Row]) -> str:
    """Rates, and what share of the copy's they are."""
    found = [row for row in rows if row["part"] == KERNELS]
    body = [
        (row["of"], row["side"], seconds(row["least_s"]), digits(row["gb_per_s"]), f"{share:.2f}")
        for row in found
        if (share := of_copy(row, rows)) is not None
    ]
    head = ("of", "work", "best call", "GB/s", "of the copy's rate")
    return f"## Kernels that choose numbers\n\n{grid(head, body)}" if body else ""


def of_copy(row: Row, rows: Sequence[Row]) -> float | None:
    """The rate of a kernel, over that of the copy in the same run."""
    copies = [other for other in rows if other["part"] == KERNELS and other["side"] == COPY]
    return row["gb_per_s"] / copies[-1]["gb_per_s"] if copies else None


def top_k(rows: Sequence[Row]) -> str:
    """By input: torch's time, and how many times as fast the others are."""
    found = beside_torch(rows)
    sides = list(dict.fromkeys(side for times in found.values() for side in times))
    body = [(kind, *(f"{digits(times[side])}x" for side in sides)) for kind, times in found.items()]
    head = ("input", *sides)
    return f"## Exact top-k, times torch.topk\n\n{grid(head, body)}" if body else ""


def beside_torch(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """By input and side, how many times as fast as `torch.topk`.

    Sides are the call from Python, and the kernel alone with each instruction set, on numbers drawn alike.
    """
    least = {(row["input"], row["side"]): row["least_s"] for row in rows if row["part"] == TOP_K}
    found: dict[str, dict[str, float]] = {}
    for (kind, side), taken in least.items():
        if side != "torch.topk":
            found[kind] = {side: least[kind, "torch.topk"] / taken}
    for row in rows:
        kind = row.get("side", "").removeprefix("top-k, ")
        if row["part"] == KERNELS and kind in found:
            found[kind][f"kernel, {row['of']}"] = least[kind, "torch.topk"] / row["least_s"]
    return found
