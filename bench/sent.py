"""The table of single messages between two namespaces, over LTP and TCP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.cases import Case, cases
from bench.compared import both
from bench.ltp import PART
from bench.run import Row
from bench.shared import PART as SHARED
from bench.units import digits, grid, size, times

_SIDES = ("ltp_bits_per_s", "tcp_bits_per_s")


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


def shared(rows: Sequence[Row]) -> str:
    """What LTP and a flow of TCP get of one link, when both send at once."""
    found = [row for row in rows if row["part"] == SHARED]
    body = [
        (row["network"], *(f"{row[side] / row['rate_bits']:.1%}" for side in _SIDES), _lost(row))
        for row in found
    ]
    head = ("network", "LTP's share of the link", "TCP's", "LTP's packets lost / sent")
    return f"## LTP and TCP on one link at once\n\n{grid(head, body)}" if body else ""


def _lost(row: Row) -> str:
    return f"{row['ltp_lost_packets']} / {row['ltp_sent_packets']}"
