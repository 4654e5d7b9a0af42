"""Races: what the launcher makes of the ranks' times, and one short race over a real network."""

from __future__ import annotations

import pytest

from tweed.recipes import ltp
from tweed.systems.ltp import side
from tweed.systems.race import _cell, race
from tweed.systems.runner import SLOW_S, Course, Lapped, Load, Side
from tweed.testbed import Network, preload

preload("tweed.systems.runner")

LOAD = Load(((100, 30), (7,), ()), 0.001, 4)


def test_gradients_are_as_large_as_their_shapes() -> None:
    assert LOAD.gradient_bytes == 4 * (3000 + 7 + 1)


def test_the_slowest_worker_decides_and_the_server_does_not() -> None:
    by_rank = [
        Lapped(serves=True, steps_s=[9.0, 9.0], sync_s=[0.0, 0.0]),
        Lapped(steps_s=[0.3, 0.2], sync_s=[0.2, 0.1], contributed_bytes=100, lost_bytes=1),
        Lapped(steps_s=[0.1, 0.4], sync_s=[0.1, 0.3], contributed_bytes=100, lost_bytes=4),
    ]
    cell = _cell(Side("a", ltp()), by_rank)
    assert (cell.steps_s, cell.sync_s) == ([0.3, 0.4], [0.2, 0.3])
    assert (cell.contributed_bytes, cell.lost_bytes, cell.failed) == (200, 5, None)


def test_a_side_that_failed_keeps_the_steps_that_all_ended() -> None:
    by_rank = [
        Lapped(steps_s=[0.3], sync_s=[0.2], failed="rank 2 was lost"),
        Lapped([], [0.1, 0.2], [0.1, 0.2]),
    ]
    cell = _cell(Side("a", ltp()), [by_rank[0], Lapped(steps_s=[0.1, 0.2], sync_s=[0.1, 0.2])])
    assert (cell.steps_s, cell.failed) == ([0.3], "rank 2 was lost")


@pytest.mark.usefixtures("namespaces")
def test_sides_take_turns_over_one_network() -> None:
    sides = [side(label) for label in ("ltp", "cubic", "bbr ×4")]
    course = Course(seconds=0.05, rounds=2, steps=6)
    cells = race(Network(rate_bits=1e8, loss=0.001), 2, sides, LOAD, course)
    assert [cell.side for cell in cells] == ["ltp", "cubic", "bbr ×4"]
    for cell in cells:
        assert cell.failed is None
        assert 2 <= len(cell.steps_s) == len(cell.sync_s) <= 6
        assert all(LOAD.compute_s < step < SLOW_S for step in cell.steps_s)
    assert [cell.contributed_bytes > 0 for cell in cells] == [True, False, False]
