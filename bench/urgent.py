"""An urgent all-reduce while a large one is under way, beside what it takes alone.

Four ranks at 20 Mbit/s, with a queue of 50 ms before each port: 25 MB are under way for a quarter of a
minute, and in that time small all-reduces are called one after the other. At each step of such a call, what
has left for a port stands before it; the ratio says how little that is. Where nothing is urgent, a small one
waits for the window of the large one, or all of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from statistics import median

import torch
import torch.distributed as dist

from bench.run import Row, quantile
from bench.units import grid, seconds
from tweed.testbed import Network, run_ranks
from tweed.torch import set_urgency

PART = "urgent"
BULK_BYTES, URGENT_BYTES, CALLS = 25_000_000, 64 << 10, 12
PAUSE_S = 0.2
RANKS, NETWORK = 4, Network(rate_bits=2e7, queue_ms=50)
FULL, QUICK = 3, 1
#: How many times what it takes alone, at most, by congestion control (fixed by the issue, 2026-11-28).
GOALS = {"cubic": 2.0, "bbr": 1.5}


def timed(rank: int, size: int, urgency: int) -> tuple[list[float], list[float]]:
    """Seconds of each small call: alone, and while the large one is under way."""
    bulk, small = torch.ones(BULK_BYTES // 4), torch.ones(URGENT_BYTES // 4)
    set_urgency(small, urgency)
    alone = [_call(small) for _ in range(1 + CALLS)][1:]
    work = dist.all_reduce(bulk, async_op=True)
    beside = []
    while len(beside) < CALLS:
        time.sleep(PAUSE_S)  # what went before must not be all that the link has to do
        beside.append(_call(small))
    assert work is not None
    work.wait()
    return alone, beside


def _call(small: torch.Tensor) -> float:
    began = time.perf_counter()
    dist.all_reduce(small)
    return time.perf_counter() - began


def rows(rounds: int) -> Iterator[Row]:
    """A row for each congestion control, with urgency and without."""
    for congestion in GOALS:
        for urgency in (1, 0):
            yield _row(rounds, congestion, urgency)


def _row(rounds: int, congestion: str, urgency: int) -> Row:
    network = Network(rate_bits=NETWORK.rate_bits, queue_ms=NETWORK.queue_ms, congestion=congestion)
    alone, beside = list[float](), list[float]()
    for _ in range(rounds):
        found = run_ranks(timed, RANKS, urgency, backend="tweed", network=network, timeout=300)
        alone += [max(call) for call in zip(*(of_rank[0] for of_rank in found), strict=True)]
        beside += [max(call) for call in zip(*(of_rank[1] for of_rank in found), strict=True)]
    figures = {"alone_s": median(alone), "median_s": median(beside), "p99_s": quantile(sorted(beside), 0.99)}
    facts = {"part": PART, "ranks": RANKS, "bytes": URGENT_BYTES, "beside_bytes": BULK_BYTES}
    return {**facts, **figures, "congestion": congestion, "urgency": urgency, "calls": len(beside)}


def table(rows: Sequence[Row]) -> str:
    """Bold where more is taken than is the goal."""
    body = [_line(row) for row in rows if row["part"] == PART]
    head = ("all-reduce of 64 KB", "congestion control", "alone", "median / p99", "ratio", "goal", "calls")
    return f"## Urgent beside 25 MB that are under way\n\n{grid(head, body)}" if body else ""


def _line(row: Row) -> Sequence[str]:
    ratio, goal = row["median_s"] / row["alone_s"], GOALS[row["congestion"]]
    if row["urgency"] == 0:
        shown, wanted = f"{ratio:.2f}x", ""
    else:
        shown, wanted = f"{ratio:.2f}x" if ratio <= goal else f"**{ratio:.2f}x**", f"{goal:.1f}x"
    both = f"{seconds(row['median_s'])} / {seconds(row['p99_s'])}"
    name = "urgent" if row["urgency"] else "not urgent"
    return (name, row["congestion"], seconds(row["alone_s"]), both, shown, wanted, str(row["calls"]))
