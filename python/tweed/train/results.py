"""What a run came to: each side's figures, and what each side took to the same accuracy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

#: One side's figures in order, each as in `metrics.jsonl`, see `loop.Figures`.
Side = Sequence[Mapping[str, Any]]
_HEADS = ("", "accuracy", "test loss", "time", "samples/s", "MB/worker", "waited")


def by_side(titles: Mapping[str, str], figures: Side) -> dict[str, Side]:
    """The figures of each side by its title; a side without any is left out.

    Args:
      titles: by label.
    """
    sides = {title: [row for row in figures if row["side"] == label] for label, title in titles.items()}
    return {title: side for title, side in sides.items() if side}


def sent(row: Mapping[str, Any]) -> int:
    """Bytes that each worker has sent: measured at its link where there is one, else computed."""
    measured: int | None = row["link_bytes_per_worker"]
    return int(row["bytes_per_worker"]) if measured is None else measured


@dataclass(frozen=True, slots=True)
class Reached:
    """What sides took to one accuracy.

    Attributes:
      accuracy: the highest that each side had at one of its evaluations.
      sides: by title, the figures up to the first evaluation at which the side had it.
    """

    accuracy: float
    sides: Mapping[str, Side]


def reached(sides: Mapping[str, Side]) -> Reached | None:
    """The comparison at the same accuracy; None with one side, or before each has been evaluated."""
    evaluated = {title: [row for row in side if row["accuracy"] is not None] for title, side in sides.items()}
    if len(sides) < 2 or not all(evaluated.values()):
        return None
    accuracy = min(max(row["accuracy"] for row in side) for side in evaluated.values())
    ends = {
        title: next(row["step"] for row in side if row["accuracy"] >= accuracy)
        for title, side in evaluated.items()
    }
    return Reached(
        accuracy,
        {title: [row for row in side if row["step"] <= ends[title]] for title, side in sides.items()},
    )


def summary(sides: Mapping[str, Side]) -> Iterator[Table]:
    """The last figures of the sides beside each other; then, of several sides, those at the same accuracy."""
    yield _table(sides, None)
    if (same := reached(sides)) is not None:
        yield _table(same.sides, f"\nTo an accuracy of {same.accuracy:.2%}")


def _table(sides: Mapping[str, Side], title: str | None) -> Table:
    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    for head in _HEADS:
        table.add_column(head, no_wrap=True, justify="right" if head else "left")
    for name, side in sides.items():
        table.add_row(name, *_cells(side[-1]))
    return table


def _cells(row: Mapping[str, Any]) -> list[str]:
    return [
        "" if row["accuracy"] is None else f"{row['accuracy']:.2%}",
        "" if row["test_loss"] is None else f"{row['test_loss']:.4f}",
        f"{row['seconds']:.1f} s",
        f"{row['samples'] / max(row['seconds'], 1e-9):,.0f}",
        f"{sent(row) / 1e6:,.1f}",
        "not known" if row["waiting_s"] is None else f"{row['waiting_s']:.1f} s",
    ]
