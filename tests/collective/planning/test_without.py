"""Plans for what is left after a loss: proven, on no link that is gone, by builders that are quick."""

from __future__ import annotations

import pytest

from tweed.collective import NETWORK, Plan, plan, topology
from tweed.collective.planning import make
from tweed.collective.topology import Topology, survivors
from tweed.errors import UsageError

SIZES = (1 << 10, 1 << 20)
NETWORKS = [topology.torus(3, 3), topology.mesh(3, 3), topology.star(5), topology.fat_tree(2, 3, 2)]


def proven(left: Plan, network: Topology) -> None:
    assert left.topology == network and left.ranks == network.ranks
    for name, _, schedule, *_ in left.rows():
        assert schedule.collective == name and schedule.ranks == network.ranks
    assert Plan.from_json(left.to_json()) == left


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
def test_a_lost_rank(network: Topology) -> None:
    made = make(network, sizes=SIZES).plan
    left = made.without(ranks=[2])
    proven(left, survivors(network, [2]))
    before, after = ({(pick.collective, pick.up_to_bytes) for pick in one.picks} for one in (made, left))
    assert after <= before and {key for key in before if key[1] is None} <= after


def test_a_lost_link_is_not_used() -> None:
    network = topology.torus(3, 3)
    left = make(network, sizes=SIZES).plan.without(links=[(0, 1), (1, 0)])
    proven(left, survivors(network, links=[(0, 1), (1, 0)]))
    rows = [(pick.pieces, row[2]) for pick, row in zip(left.picks, left.rows(), strict=True)]
    fitted = [schedule for pieces, schedule in rows if pieces is not None]
    assert fitted and all((0, 1) not in schedule.cost(1 << 20).links for schedule in fitted)


def test_builders_that_no_longer_fit_say_who_takes_over() -> None:
    network = topology.torus(3, 3)
    made = make(network, ["all_reduce"], sizes=[1 << 26]).plan
    left = made.without(ranks=[5])
    before, after = made.pick("all_reduce", 1), left.pick("all_reduce", 1)
    assert before.builder == after.builder or after.why == f"takes over from '{before.builder}' after a loss"


def test_losses_add_up() -> None:
    made = make(topology.torus(3, 3), ["all_reduce"], SIZES).plan
    assert made.without(ranks=[3]).without(ranks=[3]).topology == survivors(topology.torus(3, 3), [3, 4])


def test_a_flat_plan_loses_ranks() -> None:
    left = plan(5, NETWORK).without(ranks=[1])
    assert left.ranks == 4 and all(row[2].ranks == 4 for row in left.rows())


def test_what_cannot_be_lost() -> None:
    made = make(topology.line(3), ["all_reduce"], [64]).plan
    with pytest.raises(UsageError, match="ranks 0-1 have no link"):
        made.without(ranks=[1])
    with pytest.raises(UsageError, match="has no 3"):
        made.without(ranks=[3])
    with pytest.raises(UsageError, match=r"has no \(0, 2\)"):
        made.without(links=[(0, 2)])
    with pytest.raises(UsageError, match="1 rank"):
        made.without(ranks=[0, 1])
