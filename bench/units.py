"""Figures as people read them, and Markdown tables of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_SIZES = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB"))


def digits(value: float) -> str:
    """Three digits that count, without an exponent."""
    if value == 0:
        return "0"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def seconds(value: float) -> str:
    """Such as `4.21 ms`."""
    unit, name = next((pair for pair in _TIMES if value >= pair[0]), _TIMES[-1])
    return f"{digits(value / unit)} {name}"


def size(value: int) -> str:
    """Such as `25 MB`; 1 MB is 1024 KB, as in torch's own settings."""
    unit, name = next((pair for pair in _SIZES if value >= pair[0]), (1, "bytes"))
    return f"{value / unit:.3g} {name}"


def times(ours: float, theirs: float) -> str:
    """How often ours fits into theirs, such as `4.2x`; bold where ours is slower."""
    text = f"{digits(theirs / ours)}x"
    return f"**{text}**" if ours > theirs else text


def grid(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    rows = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
