"""Values that several tests look at: two moments of a run of two ranks, and a group that is none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tweed.metrics.snapshot import Link, Matrix, Row, Training


def row(rank: int, up_s: float, count: int, *, size: int = 2, kind: str = "tcp") -> Row:
    """A row whose counters are `count` times something that differs by counter."""
    peers = [peer for peer in range(size) if peer != rank]
    links = tuple(link(peer, count, kind) for peer in peers)
    training = Training(5 * count, 5 * count, 400, 0.25 * count, 0.125 * count)
    return Row(rank, f"host{rank}", 100 + rank, up_s, links, training, under_way_s=0.5 * count)


def link(peer: int, count: int, kind: str) -> Link:
    """Higher ranks come later."""
    last = 4 * peer * count
    numbers = (1_000_000 * count, 2_000_000 * count, 10 * count, 20 * count, count, last, 0.002 * last)
    return Link(peer, kind, *numbers, rtt_s=0.00025 if kind == "tcp" else None)


def matrix(up_s: float, count: int, *, size: int = 2, kind: str = "tcp") -> Matrix:
    """All rows of a moment."""
    rows = tuple(row(rank, up_s, count, size=size, kind=kind) for rank in range(size))
    return Matrix("digits-every_step", 100, size, up_s, rows)


BEFORE, NOW = matrix(10.0, 1), matrix(12.0, 3)
WINDOW = NOW.since(BEFORE)


@dataclass
class FakeGroup:
    """What the engine tells of one rank; the ranks of a group share `board`."""

    rank: int
    size: int = 2
    board: dict[int, bytes] = field(default_factory=dict)
    gone: bool = False
    count: int = 1
    epoch: int | None = None

    def stats(self) -> list[dict[str, Any]]:
        if self.gone:
            return []
        return [self._entry(peer) for peer in range(self.size)]

    def under_way_s(self) -> float:
        return 0.5 * self.count

    def _entry(self, peer: int) -> dict[str, Any]:
        own = peer == self.rank
        names = ("bytes_out", "bytes_in", "messages_out", "messages_in", "retransmissions", "times_last")
        counters = dict.fromkeys(names, 0 if own else self.count)
        about = {"rank": peer, "host": f"host{peer}", "link": "self" if own else "tcp"}
        ltp = {"packets": 0, "packets_lost": 0, "bandwidth": None}
        return about | counters | ltp | {"rtt_s": None if own else 0.001, "lateness_s": 0.0}

    def post(self, text: bytes) -> None:
        self.board[self.rank] = text

    def posted(self) -> dict[int, bytes]:
        return dict(self.board)
