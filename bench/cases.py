"""Rows side by side: the same work, done by several sides."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from bench.run import Row

#: Our sides, in the order of columns, and what their tensors are called.
OURS = {"tweed": "ordinary", "tweed.empty": "`tweed.empty`"}


class Case(NamedTuple):
    """One part, number of ranks and size, with the row of each side."""

    part: str
    ranks: int
    size_bytes: int
    sides: dict[str, Row]


def cases(rows: Iterable[Row], *parts: str) -> list[Case]:
    """The timed rows of these parts, in the order of `parts` and then of `rows`."""
    found: dict[tuple[str, int, int], Case] = {}
    for row in rows:
        if row["part"] in parts:
            key = (row["part"], row["ranks"], row["bytes"])
            found.setdefault(key, Case(*key, {})).sides[row["side"]] = row
    return sorted(found.values(), key=lambda case: parts.index(case.part))
