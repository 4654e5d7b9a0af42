"""Nodes and links in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tweed._core import Topology


def spans(numbers: Iterable[int]) -> str:
    """Such as "0-3, 7"."""
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in _runs(sorted(set(numbers))))


def nodes(topology: Topology, which: Iterable[int]) -> str:
    """Such as "ranks 0-3 and switch 8"."""
    which = set(which)
    parts = [
        ("rank", {node for node in which if node < topology.ranks}),
        ("switch", {node for node in which if node >= topology.ranks}),
    ]
    named = [f"{kind}{_plural(kind, found)} {spans(found)}" for kind, found in parts if found]
    return " and ".join(named) or "nobody"


def _plural(kind: str, found: set[int]) -> str:
    if len(found) == 1:
        return ""
    return "es" if kind == "switch" else "s"


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """The first and the last of every run of neighbours."""
    starts = [at for at, number in enumerate(numbers) if at == 0 or numbers[at - 1] != number - 1]
    for start, end in zip(starts, [*starts[1:], len(numbers)], strict=True):
        yield numbers[start], numbers[end - 1]
