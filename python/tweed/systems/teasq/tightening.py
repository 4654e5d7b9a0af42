"""How strongly may be compressed: a greedy search over ordered settings. Pure.

TEASQ-Fed (arXiv 2312.15186): from the mildest setting on, tighten as long as a trial loses less than a
tolerance. The way that was gone, backwards, is a schedule that relaxes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

#: A place on each ladder: 0 is the mildest setting.
Place = tuple[int, ...]


def tighten(rungs: Sequence[int], score: Callable[[Place], float], tolerance: float) -> list[Place]:
    """The places of the search, from the mildest to the strongest that is tolerable.

    Each step is one rung further on one of the ladders: of those that are tolerable, the one that loses
    least; of equal ones, the one on the first ladder.

    Args:
      rungs: of each ladder.
      score: of a place, more is better.
      tolerance: how much less than at the mildest place a score may be.

    Cost: a trial per ladder and step.

    Example:
      >>> tighten([3, 2], lambda place: -place[0] - 5 * place[1], tolerance=2)
      [(0, 0), (1, 0), (2, 0)]
    """
    place: Place = (0,) * len(rungs)
    way, least = [place], score(place) - tolerance
    while True:
        tried = {after: score(after) for after in _further(place, rungs)}
        fine = {after: found for after, found in tried.items() if found >= least}
        if not fine:
            return way
        place = max(fine, key=lambda after: fine[after])
        way.append(place)


def _further(place: Place, rungs: Sequence[int]) -> list[Place]:
    """One rung further on each ladder that has one."""
    return [
        (*place[:ladder], rung + 1, *place[ladder + 1 :])
        for ladder, rung in enumerate(place)
        if rung + 1 < rungs[ladder]
    ]
