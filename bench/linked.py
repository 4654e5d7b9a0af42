"""Tables of what was measured between namespaces: times, bytes on the wire, and iperf3 beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean

from bench.cases import PEERS, Case, cases
from bench.compared import both
from bench.networks import PART
from bench.run import Row
from bench.units import digits, grid, seconds, size, times
from tweed.testbed import Network


def least_bytes(case: Case) -> float:
    """What each rank must send in an all-reduce at least, and receive: `2 (N-1)/N S`."""
    return 2 * (case.ranks - 1) / case.ranks * case.size_bytes


def against_iperf3(case: Case, rows: Sequence[Row], side: str = "tweed", way: str = "one") -> float | None:
    """Payload per second that each rank sent at least, over what iperf3 moved in one direction."""
    rates = [rate for _, rate in _rates(rows, case.network, way)]
    return least_bytes(case) * 8 / case.sides[side]["median_s"] / mean(rates) if rates else None


def _rates(rows: Sequence[Row], network: str, way: str) -> Iterator[tuple[str, float]]:
    """Moment and mean rate of one direction of each of iperf3's runs."""
    for row in rows:
        if row["part"] == "iperf3" and row["network"] == network and row.get("way") == way:
            yield row["when"], mean(row["bits_per_s"])


def between_namespaces(rows: Sequence[Row]) -> str:
    """Times, the bound that the links set, and what the links have carried."""
    body = [_times_of(case, rows) for case in cases(rows, PART)]
    head = ("network", "ranks", "size", "link bound", "Gloo", "tweed", "tweed, times Gloo", "share of bound")
    head += ("Gloo: on the wire", "tweed: on the wire", "packets lost by chance / at full queues", "calls")
    said = {row["why"] for row in rows if row["part"] == "no testbed"}
    parts = [grid(head, body) if body else "", *(f"Not all was measured: {why}" for why in sorted(said))]
    return "\n\n".join(["## Between namespaces", *filter(None, parts)]) if any(parts) else ""


def _times_of(case: Case, rows: Sequence[Row]) -> list[str]:
    gloo, ours = case.sides["gloo"], case.sides["tweed"]
    bound = _bound_s(case)
    return [
        case.network,
        str(case.ranks),
        size(case.size_bytes),
        seconds(bound) if bound else "",
        both(gloo),
        both(ours),
        times(ours["median_s"], gloo["median_s"]),
        f"{bound / ours['median_s']:.1%}" if bound else "",
        *(_on_the_wire(case, row) for row in (gloo, ours)),
        _dropped(rows, case.network),
        f"{gloo['calls']} / {ours['calls']}",
    ]


def _bound_s(case: Case) -> float | None:
    rate = Network.parse(case.network).rate_bits
    return least_bytes(case) * 8 / rate if rate else None


def _on_the_wire(case: Case, row: Row) -> str:
    """Bytes per rank and call, and how many times what must be sent at least."""
    sent = row["sent_bytes_per_call"]
    return f"{digits(sent / 1e6)} MB, {sent / least_bytes(case):.3f}x"


def _dropped(rows: Sequence[Row], network: str) -> str:
    found = [row for row in rows if row["part"] == "links" and row["network"] == network]
    return " / ".join(f"{row['lost_packets']} / {row['overflowed_packets']}" for row in found)


def beside_iperf3(rows: Sequence[Row]) -> str:
    """Each run of iperf3, and the all-reduces' payload as a share of the mean before and after."""
    runs = [_run(row) for row in rows if row["part"] == "iperf3"]
    table = grid(("network", "when", "four flows", "rate of each direction"), runs)
    shares = [line for case in cases(rows, PART) for line in _shares(case, rows)]
    head = ("network", "side", "payload per rank and direction", "of four flows", "of four each way at once")
    return f"### Beside iperf3\n\n{table}\n\n{grid(head, shares)}" if runs else ""


def _run(row: Row) -> tuple[str, ...]:
    if "why" in row:
        return (row["network"], row["when"], row["why"], "")
    rates = ", ".join(_mbit(rate) for rate in row["bits_per_s"])
    return (row["network"], row["when"], {"one": "one way", "both": "each way at once"}[row["way"]], rates)


def _shares(case: Case, rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    for side, row in case.sides.items():
        shares = [against_iperf3(case, rows, side, way) for way in ("one", "both")]
        if None not in shares:
            payload = _mbit(least_bytes(case) * 8 / row["median_s"])
            yield (case.network, PEERS.get(side, side), payload, *(f"{share:.3f}" for share in shares))


def _mbit(rate: float) -> str:
    return f"{rate / 1e6:,.0f} Mbit/s"
