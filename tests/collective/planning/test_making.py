"""Plans for networks: the quickest in the simulator, at every size, stored and taken back."""

from __future__ import annotations

import pytest

from tests.collective.topology.families import ALL
from tweed.collective import COLLECTIVES, Plan, topology
from tweed.collective.planning import make
from tweed.collective.planning.table import ALIKE
from tweed.collective.topology import Topology
from tweed.errors import UsageError

SIZES = (1 << 10, 1 << 18)


@pytest.mark.parametrize("network", ALL, ids=lambda network: network.name)
def test_every_network_has_a_plan_that_survives_as_text(network: Topology) -> None:
    planned = make(network, ["all_reduce"], SIZES)
    back = Plan.from_json(planned.plan.to_json())
    assert back == planned.plan and back.topology == network
    assert [row[2].ranks for row in back.rows()] == [network.ranks] * len(back.picks)
    for collective in COLLECTIVES:
        ends = [pick.up_to_bytes for pick in planned.plan.picks if pick.collective == collective]
        sizes = [end for end in ends if end is not None]
        assert ends[-1] is None and sizes == sorted(set(sizes))


def test_the_pick_is_the_quickest_that_was_simulated() -> None:
    planned = make(topology.mesh(2, 3), sizes=SIZES)
    for collective, table in planned.tables.items():
        for numbytes in SIZES:
            column = table.times[numbytes]
            exact = [time.seconds for time in column if time.exact]
            choice = table.choose(numbytes)
            picked = next(
                time.seconds
                for one, time in zip(table.candidates, column, strict=True)
                if (one.builder, one.pieces) == (choice.builder, choice.pieces)
            )
            assert picked <= min(exact) * (1 + ALIKE)
            assert all(time.exact or time.seconds > picked for time in column)
            assert planned.plan.pick(collective, numbytes).builder == choice.builder


def test_rooted_collectives_are_flat_so_that_any_rank_can_be_the_root() -> None:
    planned = make(topology.ring(5), sizes=SIZES)
    for pick in planned.plan.picks:
        assert (pick.pieces is None) == (pick.collective not in planned.tables)
    for name, _, schedule, *_ in planned.plan.rows():
        if name in ("broadcast", "reduce", "gather", "scatter"):
            assert schedule.rotated(3).root == 3


def test_what_cannot_be_planned_is_refused() -> None:
    with pytest.raises(UsageError, match="no collective 'all_sort'; use one of all_reduce"):
        make(topology.ring(3), ["all_sort"])
    with pytest.raises(UsageError, match="at least one size"):
        make(topology.ring(3), sizes=[])
    with pytest.raises(UsageError, match="it has 1 rank, with nobody to send to"):
        make(Topology(1, []))
    with pytest.raises(UsageError, match="add"):
        make(Topology(4, [(0, 1, 10, 0.0), (1, 0, 10, 0.0), (2, 3, 10, 0.0), (3, 2, 10, 0.0)]))
