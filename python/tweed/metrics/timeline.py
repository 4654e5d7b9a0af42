"""What a process does within a step, while somebody records it: when it encodes, when it waits, for whom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

What = Literal["encode", "wait"]


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time, in seconds of the clock of whoever notes it.

    Attributes:
      what: "encode" is a codec's work, decoding too; "wait": training stood still for the network.
      last: of a wait the rank that was last heard of, and the kind of the link to it; None if unknown.
    """

    what: What
    began_s: float
    ended_s: float
    last: tuple[int, str] | None = None


_spans: list[Span] | None = None


@contextmanager
def recorded() -> Iterator[list[Span]]:
    """Spans of what happens within, in the order of their ends."""
    global _spans
    _spans = []
    try:
        yield _spans
    finally:
        _spans = None


def records() -> bool:
    """Whether somebody does, so that it is worth asking links."""
    return _spans is not None


def note(what: What, began_s: float, ended_s: float, last: tuple[int, str] | None = None) -> None:
    """Adds a span, if somebody records."""
    if _spans is not None:
        _spans.append(Span(what, began_s, ended_s, last))


def last_heard(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> tuple[int, str] | None:
    """The rank that most operations heard of last between two readings of a group's links, and its link.

    Args:
      before, after: as `Source.stats`; empty: unknown.
    """
    grown = [
        (now["times_last"] - then["times_last"], now["lateness_s"] - then["lateness_s"], now)
        for then, now in zip(before, after, strict=False)
        if now["times_last"] > then["times_last"]
    ]
    if not grown:
        return None
    *_, link = max(grown, key=lambda one: one[:2])
    return link["rank"], link["link"]
