"""Exchanges beside others: what is made of the ranks' times, and a short comparison over a real network."""

from __future__ import annotations

import pytest

from tweed.systems.harness.benchmark import SLOW_S, Config
from tweed.systems.ltp.contenders import SEVERAL, SIDES
from tweed.systems.ltp.exchange_benchmark import OfRank, Workload, exchange, of_ranks
from tweed.testbed import Network, preload

preload("tweed.systems.ltp.exchange_benchmark")

WORKLOAD = Workload(((100, 30), (7,), ()), 0.001, 4)


def test_gradients_are_as_large_as_their_shapes() -> None:
    assert WORKLOAD.gradient_bytes == 4 * (3000 + 7 + 1)


def test_the_slowest_worker_decides_and_the_server_does_not() -> None:
    by_rank = [
        OfRank(serves=True, steps_s=[9.0, 9.0], sync_s=[0.0, 0.0]),
        OfRank(steps_s=[0.3, 0.2], sync_s=[0.2, 0.1], contributed_bytes=100, lost_bytes=1),
        OfRank(steps_s=[0.1, 0.4], sync_s=[0.1, 0.3], contributed_bytes=100, lost_bytes=4),
    ]
    cell = of_ranks("a", by_rank)
    assert (cell.steps_s, cell.sync_s) == ([0.3, 0.4], [0.2, 0.3])
    assert (cell.contributed_bytes, cell.lost_bytes, cell.failed) == (200, 5, None)


def test_a_side_that_failed_keeps_the_steps_that_all_ended() -> None:
    by_rank = [
        OfRank(steps_s=[0.3], sync_s=[0.2], failed="rank 2 was lost"),
        OfRank([], [0.1, 0.2], [0.1, 0.2]),
    ]
    cell = of_ranks("a", [by_rank[0], OfRank(steps_s=[0.1, 0.2], sync_s=[0.1, 0.2])])
    assert (cell.steps_s, cell.failed) == ([0.3], "rank 2 was lost")


@pytest.mark.usefixtures("namespaces")
def test_sides_take_turns_over_one_network() -> None:
    sides = [SIDES["ltp"], SIDES["cubic"], SEVERAL["bbr ×4"]]
    config = Config(rounds=2, seconds=0.05, least=0, most=6, settle=True)
    cells = exchange(Network(rate_bits=1e8, loss=0.001), 2, sides, WORKLOAD, config)
    assert [cell.side for cell in cells] == ["ltp", "cubic", "bbr ×4"]
    for cell in cells:
        assert cell.failed is None
        assert 2 <= len(cell.steps_s) == len(cell.sync_s) <= 6
        assert all(WORKLOAD.compute_s < step < SLOW_S for step in cell.steps_s)
    assert [cell.contributed_bytes > 0 for cell in cells] == [True, False, False]
