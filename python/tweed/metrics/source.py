"""What the engine tells of a group. The one place that knows the form in which it does."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Protocol

from tweed.errors import Aborted
from tweed.metrics.snapshot import Link, Row, Training

_COUNTED = [item.name for item in fields(Link) if item.name not in ("peer", "kind")]


class Source(Protocol):
    """A group of the engine, as far as metrics go."""

    @property
    def rank(self) -> int:
        """This process's rank in the group."""

    @property
    def size(self) -> int:
        """How many ranks take part."""

    @property
    def epoch(self) -> int | None:
        """The epoch of members that come and go; None where the group is of no such members."""

    def stats(self) -> list[dict[str, Any]]:
        """Counters of the links to all ranks, in the order of ranks, this one included.

        Empty once this process has left the group.
        """

    def under_way_s(self) -> float:
        """Seconds in which at least one operation of the group was under way at this rank; only grows."""

    def post(self, text: bytes) -> None:
        """Leaves a small text at rank 0, over the one left before."""

    def posted(self) -> dict[int, bytes]:
        """At rank 0: the latest text of each rank that has left one."""


def row(source: Source, pid: int, up_s: float, training: Training | None) -> Row:
    """This rank's row. Links over which nothing has gone are left out.

    Raises: TweedError when the group is gone.
    """
    if not (stats := source.stats()):
        raise Aborted("this process has left the group, whose links it counts no longer")
    own = stats[source.rank]
    links = tuple(link for entry in stats if _is_used(link := _link(entry)))
    return Row(source.rank, own["host"], pid, up_s, links, training, under_way_s=source.under_way_s())


def _link(entry: dict[str, Any]) -> Link:
    counted = {name: entry[name] for name in _COUNTED}
    return Link(peer=entry["rank"], kind=entry["link"], **counted)


def _is_used(link: Link) -> bool:
    """The link of a rank to itself has no traffic, but the rank may have come last."""
    return bool(link.messages_out or link.messages_in or link.times_last)
