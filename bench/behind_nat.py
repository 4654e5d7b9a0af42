"""All-reduces where ranks only dial out at both ends, beside the same network without NAT, and beside what
the links that are left can carry.

Two of 4 behind NAT: the ring goes round the pair, so the time is that of the network without. Two of 3: all
goes through the third one, whose port takes in two buffers and gives out two, at the same time; less is
impossible, as neither of the two can sum what the other contributes. Rounds alternate between the networks.
Linux takes cubic where nobody says otherwise; with bbr the relay takes longer.
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

PART = "behind NAT"
BYTES, CALLS = 25_000_000, 3
FULL = 2
RATE_BITS = 1e8
CONGESTION = ("cubic", "bbr")
#: Of what a link carries, the rest are Ethernet's, IP's and TCP's headers.
PAYLOAD = 1448 / 1514
#: Ranks, those behind NAT, beside what, and how many times its time at most (fixed by the issue, 2026-11-22).
CASES = {
    "two of 4 behind NAT": (4, (2, 3), "the network without NAT", 1.05),
    "two of 3 behind NAT": (3, (1, 2), "the bound of the links that are left", 1.10),
}


def timed(rank: int, size: int) -> list[float]:
    """Seconds of each call, after one that is not counted."""
    buffer, spans = torch.ones(BYTES // 4), list[float]()
    for _ in range(1 + CALLS):
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(buffer)
        spans.append(time.perf_counter() - began)
    return spans[1:]


def rows(rounds: int) -> Iterator[Row]:
    """A row for each case and congestion control."""
    for congestion in CONGESTION:
        yield from _rows(rounds, congestion)


def _rows(rounds: int, congestion: str) -> Iterator[Row]:
    spans: dict[str, list[float]] = {side: [] for side in CASES}
    without: list[float] = []
    for _ in range(rounds):
        without += _slowest(4, (), congestion)
        for side, (ranks, nat, *_) in CASES.items():
            spans[side] += _slowest(ranks, nat, congestion)
    bound_s = 2 * BYTES * 8 / (RATE_BITS * PAYLOAD)
    for side, (ranks, _, beside, most) in CASES.items():
        found, base_s = sorted(spans[side]), median(without) if ranks == 4 else bound_s
        figures = {"median_s": median(found), "p99_s": quantile(found, 0.99), "calls": len(found)}
        facts = {"part": PART, "ranks": ranks, "bytes": BYTES, "side": side, "beside": beside}
        yield {**facts, **figures, "congestion": congestion, "base_s": base_s, "goal": most}


def _slowest(size: int, nat: tuple[int, ...], congestion: str) -> list[float]:
    """Of each call, the time of the rank that took longest."""
    network = Network(rate_bits=RATE_BITS, nat=nat, congestion=congestion)
    found = run_ranks(timed, size, backend="tweed", network=network, timeout=300)
    return [max(call) for call in zip(*found, strict=True)]


def table(rows: Sequence[Row]) -> str:
    """Bold where more is taken than is the goal."""
    body = [_line(row) for row in rows if row["part"] == PART]
    head = (
        "all-reduce of 25 MB, 100 Mbit/s",
        "congestion control",
        "median / p99",
        "beside",
        "takes",
        "ratio",
        "goal",
        "calls",
    )
    return f"## Ranks that only dial out\n\n{grid(head, body)}" if body else ""


def _line(row: Row) -> Sequence[str]:
    ratio = row["median_s"] / row["base_s"]
    shown = f"{ratio:.3f}x" if ratio <= row["goal"] else f"**{ratio:.3f}x**"
    both = f"{seconds(row['median_s'])} / {seconds(row['p99_s'])}"
    base, goal = seconds(row["base_s"]), f"{row['goal']:.2f}x"
    return (row["side"], row["congestion"], both, row["beside"], base, shown, goal, str(row["calls"]))
