"""A greedy search from mild to strong."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tweed.systems.teasq.tightening import tighten

TABLES = st.lists(st.lists(st.integers(0, 10), min_size=3, max_size=3), min_size=1, max_size=5)


@given(TABLES, st.integers(0, 10))
def test_it_goes_one_rung_at_a_time_and_stops_where_nothing_further_is_tolerable(
    scores: list[list[int]], tolerance: int
) -> None:
    def score(place: tuple[int, ...]) -> float:
        return scores[place[0]][place[1]]

    way = tighten([len(scores), 3], score, tolerance)
    assert way[0] == (0, 0)
    for before, after in pairwise(way):
        assert sum(after) == sum(before) + 1 and all(a >= b for a, b in zip(after, before, strict=True))
    least = score((0, 0)) - tolerance
    assert all(score(place) >= least for place in way)
    last = way[-1]
    further = [(last[0] + 1, last[1]), (last[0], last[1] + 1)]
    assert all(score(place) < least for place in further if place[0] < len(scores) and place[1] < 3)


def test_it_takes_the_rung_that_loses_least() -> None:
    tried = []

    def score(place: tuple[int, ...]) -> float:
        tried.append(place)
        return -2.0 * place[0] - 1.0 * place[1]

    assert tighten([3, 3], score, tolerance=3.5) == [(0, 0), (0, 1), (0, 2)]
    assert len(tried) == len(set(tried))
