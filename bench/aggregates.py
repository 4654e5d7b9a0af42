"""Rules that bear hostile contributions: beside a plain sum, and ByzFL where it is installed. One core."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bench.run import Row, least_s
from bench.units import digits, grid, seconds
from tweed.aggregate import (
    ARC,
    CAF,
    MDA,
    SMEA,
    Arrival,
    Bulyan,
    CentredClipping,
    GeometricMedian,
    Krum,
    Mean,
    MeanAroundMedian,
    Median,
    MoNNA,
    MultiKrum,
    NearestNeighbourMixing,
    NormClipping,
    Phocas,
    TrimmedMean,
    conclude,
)
from tweed.aggregate.coordinate_wise import CoordinateWise

PART, SUM = "aggregates", "a plain sum"
SENDERS, NUMEL, F = 20, 1_000_000, 5
#: By rule: ours, and its name in ByzFL with what it is told. MDA and SMEA of ByzFL go over 15,504 subsets of
#: whole contributions, which takes hours; its CAF draws a direction at random, and differs from call to call.
RULES: dict[str, tuple[Any, tuple[Any, ...] | None]] = {
    "median": (Median(), ("Median",)),
    "trimmed mean": (TrimmedMean(F), ("TrMean", F)),
    "mean around the median": (MeanAroundMedian(F), ("Meamed", F)),
    "Phocas": (Phocas(F), None),
    "Krum": (Krum(F), ("Krum", F)),
    "Multi-Krum": (MultiKrum(F), ("MultiKrum", F)),
    "Bulyan": (Bulyan(F - 1), None),
    "geometric median": (GeometricMedian(0.1, 3), ("GeometricMedian", 0.1, 3)),
    "centred clipping": (CentredClipping(100.0, 1), ("CenteredClipping", None, 1, 100.0)),
    "MDA": (MDA(F), None),
    "SMEA": (SMEA(F), None),
    "CAF": (CAF(F), ("CAF", F)),
    "MoNNA": (MoNNA(F), ("MoNNA", F)),
    "mixing, mean": (NearestNeighbourMixing(Mean(), F), ("NNM", F)),
    "clipping, mean": (NormClipping(Mean(), 100.0), ("Clipping", 100.0)),
    "ARC, mean": (ARC(Mean(), F), ("ARC", F)),
}
#: Those that judge each number by itself.
BY_NUMBER = {name for name, (rule, _) in RULES.items() if isinstance(rule, CoordinateWise)}


def rows() -> Iterator[Row]:
    """The best of some calls of each side. ByzFL: `pip install byzfl`; without it its rows are left out."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    made = torch.Generator().manual_seed(1)
    values = [torch.randn(NUMEL, generator=made) for _ in range(SENDERS)]
    yield {"part": PART, "of": "all", "side": SUM, "least_s": least_s(partial(_sum, values), 9)}
    for name, (ours, theirs) in RULES.items():
        print(f"  {name}", file=sys.stderr, flush=True)
        row = {"part": PART, "of": name}
        yield row | {"side": "tweed", "least_s": least_s(partial(_aggregate, ours, values), 5)}
        if theirs is not None and importlib.util.find_spec("byzfl"):
            rule = _byzfl(*theirs)
            off = int(((rule(values) - _aggregate(ours, values)).abs() > 1e-6).sum())
            yield row | {"side": "ByzFL", "least_s": least_s(lambda rule=rule: rule(values), 2), "off": off}
    torch.set_num_threads(threads)


def _sum(values: Sequence[Tensor]) -> Tensor:
    total = values[0].clone()
    for value in values[1:]:
        total.add_(value)
    return total


def _aggregate(rule: Any, values: Sequence[Tensor]) -> Any:
    state = rule.start()
    for sender, value in enumerate(values):
        state = rule.handle(Arrival(value, sender), state, 0.0)
    return conclude(rule, state, 0.0)[0]


def _byzfl(name: str, *settings: Any) -> Callable[[Sequence[Tensor]], Tensor]:
    """Their rule; what is done before one, with their mean behind it. Each call is the first."""
    import byzfl

    made = getattr(byzfl, name)
    if name in ("NNM", "Clipping", "ARC"):
        # theirs clip in place
        return lambda values: byzfl.Average()(made(*settings)([value.clone() for value in values]))
    return lambda values: made(*settings)(values)


def factors(rows: Sequence[Row]) -> Iterator[tuple[str, float, float | None]]:
    """By rule: ours over a plain sum, and ByzFL over ours, in the same run; None: it was not there."""
    least = {(row["of"], row["side"]): row["least_s"] for row in rows if row["part"] == PART}
    for (of, side), ours in least.items():
        if side == "tweed":
            theirs = least.get((of, "ByzFL"))
            yield of, ours / least["all", SUM], theirs and theirs / ours


def beside(rows: Sequence[Row]) -> str:
    """Each side's time, and what it is in plain sums; in how many numbers ByzFL differs from ours. Around the
    median that may be where two contributions are as far from it."""
    found = [row for row in rows if row["part"] == PART]
    total = sum(row["least_s"] for row in found if row["side"] == SUM)
    body = [
        (
            row["of"],
            row["side"],
            seconds(row["least_s"]),
            f"{digits(row['least_s'] / total)}x",
            str(row.get("off", "")),
        )
        for row in found
    ]
    head = ("rule", "side", "best call", "in plain sums", "numbers that differ from ours")
    title = f"## Hostile contributions: {SENDERS} of {NUMEL:,} float32, {F} may be anything, one core"
    return f"{title}\n\n{grid(head, body)}" if body else ""
