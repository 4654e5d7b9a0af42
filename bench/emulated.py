"""Tables of what the testbed was asked for and what it gave, and of how far its link emulator reaches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from bench.emulator import LOAD, LOSS, PING, RATE
from bench.run import Row
from bench.units import digits, grid

#: The goals: how far a median delay may be off, a rate, and a loss in standard deviations.
DELAY_MS, RATE_SHARE, DEVIATIONS = 1.0, 0.05, 3.0
#: Of what left the senders' links, the least share that must arrive for the emulator to have kept up; and of
#: what was asked of the senders, the least share that makes the load the one that it is called.
_KEPT_UP, _OFFERED = 0.99, 0.97
#: The largest share that may come more than a millisecond late.
_LATE = 0.01


def delay_off_ms(row: Row) -> float:
    """By how much the median round trip is longer than asked for."""
    return float(row["median_ms"] - row["asked_ms"])


def rate_off(row: Row) -> float:
    """By which share a rate is above that asked for."""
    return float(row["bits_per_s"] / row["asked_bits_per_s"] - 1)


def honest(row: Row) -> bool:
    """Whether what was sent got through in time: nothing missed, and delays of others as they should be."""
    in_time = abs(delay_off_ms(row)) <= DELAY_MS
    in_time = in_time and row["late"] <= _LATE
    return bool(row["missed_packets"] == 0 and row["arrived"] >= _KEPT_UP and in_time)


def accuracy(rows: Sequence[Row]) -> str:
    """Delay, rate and loss: asked for and measured."""
    body = [*_of(rows, PING, _delay), *_of(rows, RATE, _rate), *_of(rows, LOSS, _loss)]
    head = ("network", "what", "asked for", "measured", "off by")
    return f"## The testbed: asked for and measured\n\n{grid(head, body)}" if body else ""


def _of(rows: Sequence[Row], part: str, line: Callable[[Row], Sequence[str]]) -> Iterator[Sequence[str]]:
    return (line(row) for row in rows if row["part"] == part)


def _delay(row: Row) -> Sequence[str]:
    measured = f"{digits(row['median_ms'])} / {digits(row['p99_ms'])} ms"
    asked = f"{row['asked_ms']:g} ms"
    return (row["network"], "round trip, median / p99", asked, measured, f"{delay_off_ms(row):+.2f} ms")


def _rate(row: Row) -> Sequence[str]:
    rates = (f"{row[key] / 1e6:.1f} Mbit/s" for key in ("asked_bits_per_s", "bits_per_s"))
    return (row["network"], "rate, headers included", *rates, f"{rate_off(row):+.1%}")


def _loss(row: Row) -> Sequence[str]:
    measured = f"{row['lost_packets'] / row['sent_packets']:.3%} of {row['sent_packets']:,} packets"
    off = f"{row['off']:+.1f} standard deviations"
    return (row["network"], "loss", f"{row['asked']:.1%}", measured, off)


def reach(rows: Sequence[Row]) -> str:
    """Up to which load the emulator is honest."""
    body = [_load(row) for row in rows if row["part"] == LOAD]
    head = (
        "senders",
        "each",
        "offload",
        "round trip",
        "payload",
        "arrived",
        "ping of idle hosts, median / p99",
    )
    head += ("missed", "late", "cores: emulator / machine", "honest")
    return f"## The testbed: how far the emulator reaches\n\n{grid(head, body)}" if body else ""


def _load(row: Row) -> Sequence[str]:
    return (
        str(row["hosts"]),
        f"{row['rate_bits'] / 1e6:g} Mbit/s",
        "yes" if "offload=yes" in row["network"] else "no",
        f"{row['asked_ms']:g} ms",
        f"{row['offered']:.1%}",
        f"{row['arrived']:.1%}",
        f"{digits(row['median_ms'])} / {digits(row['p99_ms'])} ms",
        f"{row['missed_packets']:,}",
        f"{row['late']:.1%}",
        f"{row['emulator_cores']:.2f} / {row['machine_cores']:.2f}",
        _verdict(row),
    )


def _verdict(row: Row) -> str:
    if not honest(row):
        return "**no**"
    return "yes" if row["offered"] >= _OFFERED else "yes, but the senders did not get there"
