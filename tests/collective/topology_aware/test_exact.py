"""Exact schedules for a handful of ranks."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest

from tweed.collective import build, topology
from tweed.collective.topology import Topology
from tweed.collective.topology_aware import exact
from tweed.collective.topology_aware.exact import Point, Program

DGX = topology.dgx1()


def test_a_program_keeps_within_its_rows() -> None:
    program = Program()
    for name in "abc":
        program.variable(name, 0, 3)
    program.row([("a", 2), ("b", 1)], most=4)
    program.row([("a", 1), ("b", 1), ("c", 1), ("no variable", 1)], 9, 9)
    assert program.solve() is None
    program = Program()
    program.variable("a", 0, 9)
    program.row([("a", 2)], 5, 7)
    assert program.solve() == {"a": 3}


def test_the_front_of_a_dgx_1() -> None:
    """SCCL finds the same two, and that no third lies between them."""
    assert exact.bound(DGX) == Fraction(7, 6)
    assert exact.front(DGX, most_rounds=7) == [Point(2, 3, 2), Point(3, 7, 6)]


@pytest.mark.parametrize("point", [Point(2, 2, 1), Point(2, 3, 2), Point(3, 7, 6)])
def test_a_solution_keeps_to_its_point(point: Point) -> None:
    trees = exact.solve(DGX, point)
    assert [tree.root for tree in trees] == [rank for rank in range(8) for _ in range(point.chunks)]
    counts = {(a, b): count for a, b, _, _, count in DGX.links}
    loads = Counter((edge.step, edge.parent, edge.child) for tree in trees for edge in tree.edges)
    rounds: dict[int, int] = {}
    for (step, src, dst), load in loads.items():
        rounds[step] = max(rounds.get(step, 0), -(-load // counts[src, dst]))
    assert len(rounds) == point.steps
    assert sum(rounds.values()) <= point.rounds


def test_what_is_impossible_has_no_solution() -> None:
    assert not exact.solve(DGX, Point(1, 7, 1))
    assert not exact.solve(DGX, Point(2, 4, 3))


def test_wider_links_carry_more() -> None:
    """Rank 2 hears the others over links of 2 and of 1: its cut asks for 2 / 3, and a chunk is not cut."""
    links = [
        (0, 1, 10, 0.0),
        (1, 0, 10, 0.0),
        (0, 2, 20, 0.0),
        (2, 0, 10, 0.0),
        (1, 2, 10, 0.0),
        (2, 1, 10, 0.0),
    ]
    network = Topology(3, links)
    assert exact.solve(network, Point(1, 1, 1))
    assert build("all_reduce", "exact", network).cost(1).steps == 2


@pytest.mark.parametrize("network", [topology.ring(5), topology.mesh(2, 4), topology.hypercube(3)])
def test_networks_of_a_few_ranks_reach_their_bound(network: Topology) -> None:
    numbytes = 8 * 6 * 1000 * network.ranks
    schedule = build("all_gather", "exact", network, pieces=6)
    rounds = exact.bound(network) * 6
    assert schedule.seconds(numbytes, network) * topology.GIGABIT.bandwidth >= float(rounds) * 8000
    assert max(schedule.cost(numbytes).links.values()) <= rounds * 8000
