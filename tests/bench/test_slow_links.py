"""The bench of steps over slow links: how many rounds there are, and what its table says."""

from __future__ import annotations

import pytest

from bench import slow_links
from bench.run import Row
from bench.slow_links import FULL, LEAST_ROUNDS, LONGEST_S, PEER, QUICK, ROUNDS, Cell
from tweed.report.comparison import median_interval


def step(side: str, *seconds: float) -> Row:
    facts = {"part": slow_links.PART, "network": "rate=10mbit", "ranks": 2, "bytes": 800_000, "side": side}
    return {**facts, "block_medians_s": seconds, "median_s": seconds[0], "returned_mean": 2.0}


@pytest.mark.parametrize(
    ("ranks", "params_m", "rate_bits", "rounds"),
    [(2, 0.2, 1e7, ROUNDS), (8, 0.2, 1e7, 18), (4, 2.0, 1e7, LEAST_ROUNDS), (8, 10.0, 1e9, ROUNDS)],
)
def test_there_are_fewer_rounds_where_a_step_takes_seconds(
    ranks: int, params_m: float, rate_bits: float, rounds: int
) -> None:
    cell = Cell(ranks, params_m, rate_bits, FULL.cell_s)
    assert cell.config.rounds == rounds
    assert cell.size_bytes == pytest.approx(4e6 * params_m, rel=0.01)


def test_all_of_it_takes_less_than_25_minutes() -> None:
    def all_s(scope: slow_links.Scope) -> float:
        rates = [1e7, 1e8, 1e9, 1e9][: len(scope.networks)]
        cells = [
            Cell(ranks, params_m, rate, scope.cell_s)
            for rate in rates
            for ranks in scope.ranks
            for params_m in scope.params_m
        ]
        found = [(cell.ring_s, cell.config) for cell in cells if cell.ring_s <= LONGEST_S]
        return sum(3 * each_s * (config.rounds + 2) for each_s, config in found)

    assert all_s(FULL) < 22 * 60
    assert all_s(QUICK) < 60


def test_a_cell_is_bold_where_its_whole_interval_is_above_the_goal() -> None:
    rows = [
        step(PEER, *[1.0] * 6),
        step("slower", 1.04, 1.05, 1.06, 1.04, 1.05, 1.06),
        step("level", 1.02, 1.05, 1.06, 1.04, 1.05, 1.06),
    ]
    page = slow_links.table(rows)
    assert "**1.050 (1.040 to 1.060)**" in page
    assert "| 1.050 (1.020 to 1.060) |" in page
    assert slow_links.table([]) == ""


def test_the_kernels_counter_is_found_by_its_name() -> None:
    assert slow_links.sent_again("Ip: A\nIp: 1\nTcp: InSegs RetransSegs OutRsts\nTcp: 5 7 9\n") == 7


def test_the_interval_of_a_median_leaves_out_as_many_at_both_ends() -> None:
    assert median_interval([*range(6)]) == (0, 5)
    assert median_interval([*range(9)]) == (1, 7)
    assert median_interval([3, 1]) == (1, 3)
    assert median_interval([2.5]) == (2.5, 2.5)
