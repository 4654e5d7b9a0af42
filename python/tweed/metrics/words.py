"""Metrics in words and tables, for people at a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table


def table_of(*heads: str, left: Sequence[str] = ("host",), gap: int = 2) -> Table:
    """Without lines; columns of numbers stand to the right, those named in `left` do not."""
    found = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
    for head in heads:
        found.add_column(head, no_wrap=True, justify="left" if head in left else "right")
    return found


def rate(bytes_per_s: float) -> str:
    """MB/s to about three digits."""
    value = bytes_per_s / 1e6
    digits = 0 if value >= 100 or value == 0 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}"


def size(count: float) -> str:
    """Bytes with a unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def milliseconds(seconds: float) -> str:
    """Milliseconds to about two digits; microseconds where that would be nothing."""
    value = seconds * 1e3
    if 0 < value < 0.1:
        return f"{value * 1e3:.0f} µs"
    return f"{value:.2f} ms" if value < 10 else f"{value:,.0f} ms"


def age(seconds: float) -> str:
    """Seconds in one short word."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:,.0f} h"


def duration(seconds: float) -> str:
    """Seconds in words; minutes and hours where there are any."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
