"""The table of single messages between two namespaces, over LTP and TCP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.cases import Case, cases
from bench.compared import both
from bench.ltp import PART
from bench.run import Row
from bench.units import digits, grid, size, times


def messages(rows: Sequence[Row]) -> str:
    """Rates by medians, times, and CPU of both ends together beside TCP's."""
    body = [line for case in cases(rows, PART) for line in _lines(case)]
    head = (
        "network",
        "size",
        "side",
        "median / p99",
        "Gbit/s",
        "times TCP",
        "CPU s per GB: sender, receiver",
    )
    head += ("packets lost / sent", "bytes of a packet", "calls")
    return (
        f"## One message after the other, from one namespace to another\n\n{grid(head, body)}" if body else ""
    )


def gbit_per_s(case: Case, side: str) -> float:
    """Values per second, by the median."""
    return float(case.size_bytes * 8 / case.sides[side]["median_s"] / 1e9)


def _lines(case: Case) -> Iterator[Sequence[str]]:
    for side, row in case.sides.items():
        spent = row["cpu_s_per_gb"]
        packets = f"{row['lost_packets']} / {row['sent_packets']}" if row["sent_packets"] else ""
        yield (
            case.network,
            size(case.size_bytes),
            side,
            both(row),
            digits(gbit_per_s(case, side)),
            times(row["median_s"], case.sides["TCP"]["median_s"]),
            f"{digits(spent['sender'])}, {digits(spent['receiver'])}",
            packets,
            str(row["packet_bytes"] or ""),
            str(row["calls"]),
        )
