"""Tables of schedules on their networks: what was predicted, what was measured, was the pick right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from bench.cases import Case, cases
from bench.fitting import PART
from bench.run import Row
from bench.units import grid, seconds, size, times

#: Below this many bytes, a message's own time counts for more than the link's rate.
SHORT_BYTES = 64 << 10
#: The pick may be so much slower than the best.
NEAR = 1.05


def pairs(rows: Sequence[Row]) -> list[Row]:
    """Rows of a schedule on a network at a size, predicted and measured."""
    return [row for row in rows if row["part"] == PART and row["predicted_s"] is not None]


def off(row: Row) -> float:
    """By what share of the measured time the prediction is off."""
    return float(abs(row["predicted_s"] / row["median_s"] - 1))


def median_off(found: Sequence[Row]) -> float:
    """The median of these pairs."""
    return median(map(off, found))


def unseen(rows: Sequence[Row]) -> list[Case]:
    """Networks and sizes that nobody looked at while the prediction was made, with two builders or more."""
    found = [row for row in pairs(rows) if not row["seen"]]
    return [case for case in cases(found, PART) if len(case.sides) > 2]


def pick(case: Case) -> str:
    """The side that is predicted to be the quickest."""
    ours = {side: row for side, row in case.sides.items() if row["predicted_s"] is not None}
    return min(ours, key=lambda side: ours[side]["predicted_s"])


def best(case: Case) -> str:
    """The side of ours that was the quickest."""
    ours = [side for side, row in case.sides.items() if row["predicted_s"] is not None]
    return min(ours, key=lambda side: case.sides[side]["median_s"])


def behind(case: Case) -> float:
    """The pick's time over the best one's."""
    return float(case.sides[pick(case)]["median_s"] / case.sides[best(case)]["median_s"])


def schedules(rows: Sequence[Row]) -> str:
    """All sections."""
    found = pairs(rows)
    if not found:
        return ""
    picture = "![Predicted and measured times](schedules.svg)"
    parts = (_calibration(rows), _errors(found), picture, _picks(rows))
    return "\n\n".join(["## Schedules on their networks", *parts])


def _calibration(rows: Sequence[Row]) -> str:
    said = "This machine takes {} for a message at each end, {} to wake up for one; its emulator is {} late."
    names = ("message_s", "wake_s", "late_s")
    found = (row for row in rows if row["part"] == "calibration")
    return "\n".join(said.format(*(seconds(row[name]) for name in names)) for row in found)


def _errors(found: Sequence[Row]) -> str:
    networks = dict.fromkeys(row["network"] for row in found)
    groups = {name: [row for row in found if row["network"] == name] for name in networks}
    short = f"pairs below {size(SHORT_BYTES)}"
    head = ("network", "pairs", "median error", short, "median error", "worst", "doubts")
    return grid(head, (_error(name, group) for name, group in ({"all": found} | groups).items()))


def _error(name: str, group: Sequence[Row]) -> Sequence[str]:
    short = [row for row in group if row["bytes"] < SHORT_BYTES]
    worst = max(group, key=off)
    low = f"{median_off(short):.1%}" if short else ""
    high = f"{worst['side']}, {size(worst['bytes'])}: {off(worst):.0%}"
    doubts = "; ".join(dict.fromkeys(doubt for row in group for doubt in row["doubts"]))
    told = "" if name == "all" else doubts
    return (name, str(len(group)), f"{median_off(group):.1%}", str(len(short)), low, high, told)


def _picks(rows: Sequence[Row]) -> str:
    """Every network and size: what was picked, what was best, and the baselines beside them."""
    head = ("network", "ranks", "size", "pick", "predicted", "measured", "best", "behind the best")
    head += ("ring, times the pick", "halving-doubling", "Gloo", "used while building")
    body = (_picked(case) for case in cases(rows, PART))
    return grid(head, body)


def _picked(case: Case) -> Iterator[str]:
    chosen = case.sides[pick(case)]
    yield from (case.network, str(case.ranks), size(case.size_bytes), pick(case))
    yield from (seconds(chosen["predicted_s"]), seconds(chosen["median_s"]))
    yield from (best(case), f"{behind(case) - 1:+.0%}" if pick(case) != best(case) else "")
    for side in ("ring", "halving_doubling", "gloo"):
        row = case.sides.get(side)
        yield times(chosen["median_s"], row["median_s"]) if row else ""
    yield "yes" if chosen["seen"] else ""
