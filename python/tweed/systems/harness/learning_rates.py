"""Learning rates: which one is tried next, and when the best is known. Pure.

Rates lie on a geometric grid around a first one. The grid widens at the edge that the best rate lies on,
until the best lies strictly inside, or until so many were tried: then the side is unsettled, and no page with
it is published; or it has failed, if it had no success at any rate. Every side of a comparison is searched
so, baselines and ours alike, with as many steps as the runs that are judged and with a seed that no judged
run has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tweed.errors import UsageError
from tweed.report.notes import Line, find, where

#: The seed of every search. Judged runs have seeds below it.
SEARCH_SEED = 100


@dataclass(frozen=True, slots=True)
class Grid:
    """Rates that may be tried.

    Attributes:
      first: where the search begins.
      factor: between neighbours, 1.5 or more.
      tries: rates that are tried at most.
    """

    first: float
    factor: float = 3.0
    tries: int = 8

    def __post_init__(self) -> None:
        if not (self.first > 0 and self.factor >= 1.5 and self.tries >= 1):
            raise UsageError(f"{self} is no grid: first above 0, factor 1.5 or more, at least one try")

    def rate(self, place: int) -> float:
        """The rate so many places above the first, to three digits."""
        return float(f"{self.first * self.factor**place:.3g}")


class State(Enum):
    """What is to be done with a decision's rate, and why."""

    TRY = "the best rate so far is at the edge of those that were tried"
    SETTLED = "the rates beside it are worse"
    UNSETTLED = "it is at the edge of all rates that were tried, and no more may be"
    FAILED = "none of the rates that were tried had success, and no more may be: the first stands for all"


@dataclass(frozen=True, slots=True)
class Decision:
    """The rate to try next, or the best one."""

    rate: float
    state: State


def decide(grid: Grid, scores: Mapping[float, float | None]) -> Decision:
    """What a search does next.

    Args:
      grid: the rates.
      scores: by rate that was tried, how well it did, more is better; None, or what is not finite: diverged,
        the worst there is. Of equally good rates the lowest counts.

    Returns: a rate that is not in `scores`, to be tried; or the best, after `grid.tries` rates at the latest.
    """
    if grid.rate(0) not in scores:
        return Decision(grid.rate(0), State.TRY)
    low = high = 0
    while grid.rate(high + 1) in scores:
        high += 1
    while grid.rate(low - 1) in scores:
        low -= 1
    best = max(range(low, high + 1), key=lambda place: (_order(scores.get(grid.rate(place))), -place))
    if low < best < high:
        return Decision(grid.rate(best), State.SETTLED)
    if high - low + 1 >= grid.tries:
        if all(_order(scores.get(grid.rate(place))) == -math.inf for place in range(low, high + 1)):
            return Decision(grid.rate(0), State.FAILED)
        return Decision(grid.rate(best), State.UNSETTLED)
    return Decision(grid.rate(high + 1 if best == high else low - 1), State.TRY)


def _order(score: float | None) -> float:
    return score if score is not None and math.isfinite(score) else -math.inf


def search(
    side: str, grid: Grid, lines: Iterable[Line], measure: Callable[[float], float | None]
) -> Iterator[Line]:
    """Lines for notes: one per rate that is tried, kind "search", and one of kind "rate" with the best.

    Args:
      side: its name, for people; no other has it.
      lines: of notes. What they have already is not measured again.
      measure: the score at a rate, see `decide`.
    """
    known = where(lines, side=side)
    if find(known, kind="rate") is not None:
        return
    scores: dict[float, float | None] = {line["lr"]: line["score"] for line in where(known, kind="search")}
    while (decision := decide(grid, scores)).state is State.TRY:
        score = measure(decision.rate)
        scores[decision.rate] = score if _order(score) > -math.inf else None
        yield {"kind": "search", "side": side, "lr": decision.rate, "score": scores[decision.rate]}
    facts: dict[str, Any] = {"kind": "rate", "side": side, "lr": decision.rate}
    yield facts | {"settled": decision.state is not State.UNSETTLED, "tried": sorted(scores)}


def best_lr(lines: Iterable[Line], side: str) -> float | None:
    """The rate that a side's search found best; None if it was not searched to its end."""
    found = find(lines, kind="rate", side=side)
    return None if found is None else float(found["lr"])


def require_settled(lines: Iterable[Line]) -> None:
    """Raises: UsageError if the best rate of a side is at the edge of what was tried; names them all."""
    edges = [
        f"{line['side']} ({line['lr']:g} of {min(line['tried']):g} to {max(line['tried']):g})"
        for line in where(lines, kind="rate", settled=False)
    ]
    if edges:
        raise UsageError(
            f"the best learning rate is at the edge of those that were tried, for {'; '.join(edges)}: such "
            "figures are not published. Let the grid begin nearer to it or have more tries, and run again"
        )
