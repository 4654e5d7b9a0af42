"""Rows side by side: the same work, done by several sides."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from bench.run import Row

#: Our sides, in the order of columns, and what their tensors are called.
OURS = {"tweed": "ordinary", "tweed.empty": "`tweed.empty`"}
#: Those beside them, and their names.
PEERS = {"gloo": "Gloo", "openmpi": "OpenMPI"}
SIDES = (*PEERS, *OURS)


class Case(NamedTuple):
    """One part, number of ranks, size and network ("" for none of its own), with the row of each side."""

    part: str
    ranks: int
    size_bytes: int
    network: str
    sides: dict[str, Row]

    def times(self, side: str, peer: str) -> float:
        """How many times as fast as `peer` our `side` is, by medians."""
        return float(self.sides[peer]["median_s"]) / float(self.sides[side]["median_s"])


def cases(rows: Iterable[Row], *parts: str) -> list[Case]:
    """The timed rows of these parts, in the order of `parts` and then of `rows`."""
    found: dict[tuple[str, int, int, str], Case] = {}
    for row in rows:
        if row["part"] in parts:
            key = (row["part"], row["ranks"], row["bytes"], row.get("network", ""))
            found.setdefault(key, Case(*key, {})).sides[row["side"]] = row
    return sorted(found.values(), key=lambda case: parts.index(case.part))
