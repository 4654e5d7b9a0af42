"""Predicted times and what follows from them: picks, bounds, the front."""

from __future__ import annotations

import pytest

from tests.collective.topology.families import ALL
from tweed.collective import bounds, build, topology
from tweed.collective.planning import Table, candidates, predicted
from tweed.collective.topology import Topology
from tweed.errors import UsageError

SMALL, LARGE = 1 << 10, 1 << 20


def filled(network: Topology, collective: str = "all_reduce") -> Table:
    table = Table(collective, network, *candidates(collective, network))
    for numbytes in (SMALL, LARGE):
        table.predict(numbytes)
    return table


@pytest.mark.parametrize("network", ALL, ids=lambda network: network.name)
def test_nothing_beats_the_bound(network: Topology) -> None:
    table = filled(network)
    for numbytes, column in table.times.items():
        least = bounds.of("all_reduce", network).seconds(numbytes)
        assert all(time.seconds >= least * (1 - 1e-9) for time in column if time.exact)
        verdict = table.verdict(numbytes)
        assert verdict.bound_s == least and 0 < verdict.busy <= 1 + 1e-9
        assert "decide" in verdict.reason and verdict.limit


@pytest.mark.parametrize("network", ALL, ids=lambda network: network.name)
def test_the_front_is_not_beaten_in_both(network: Topology) -> None:
    table = filled(network)
    front = table.front()
    ends = [tuple(table.times[size][at] for size in (SMALL, LARGE)) for at in range(len(table.candidates))]
    for at in front:
        assert all(time.exact for time in ends[at])
    for place, (small, large) in enumerate(ends):
        by = [ends[at] for at in front]
        assert place in front or any(a.seconds <= small.seconds and b.seconds <= large.seconds for a, b in by)


def test_what_is_not_simulated_could_not_win() -> None:
    table = filled(topology.mesh(4, 4))
    for numbytes, column in table.times.items():
        best = min(time.seconds for time in column if time.exact)
        for one, time in zip(table.candidates, column, strict=True):
            if not time.exact:
                assert time.seconds >= one.floor * numbytes
                assert predicted(one.schedule, numbytes, table.topology) > best


def test_long_buffers_go_on_in_a_straight_line() -> None:
    network = topology.torus(4, 4)
    schedule = build("all_reduce", "multitree", network)
    times = [predicted(schedule, size << 30, network) for size in (4, 8)]
    assert times[1] == pytest.approx(2 * times[0], rel=1e-2)
    assert times[1] >= bounds.of("all_reduce", network).seconds(8 << 30)


def test_flat_builders_for_collectives_with_a_root() -> None:
    found, refused = candidates("broadcast", topology.mesh(2, 3))
    assert {one.pieces for one in found} == {None} and not refused
    assert all(one.schedule.topology == topology.mesh(2, 3) for one in found)


def test_refused_builders_say_why() -> None:
    _, refused = candidates("all_reduce", topology.torus(5, 5))
    assert refused["star"].startswith("24 ranks would send to one at a time")


def test_some_builders_only() -> None:
    found, refused = candidates("all_reduce", topology.line(3), ["ring", "swing"])
    assert [one.builder for one in found] == ["ring"] and list(refused) == ["swing"]


def test_all_to_all_goes_straight() -> None:
    found, _ = candidates("all_to_all", topology.ring(4))
    assert all(one.schedule.direct for one in found)


def test_a_collective_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="no builder has a schedule for all_sort"):
        candidates("all_sort", topology.ring(4))
