"""Networks that collectives cannot run on, and what the error says to change."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.collective.topology.families import ALL
from tweed.collective import build, topology
from tweed.collective.topology import Topology
from tweed.errors import UsageError


def network(*pairs: tuple[int, int], ranks: int = 4) -> Topology:
    return Topology(ranks, [(src, dst, 1000, 0.001) for src, dst in pairs])


def both(*pairs: tuple[int, int]) -> list[tuple[int, int]]:
    return [*pairs, *((dst, src) for src, dst in pairs)]


RING = [(0, 1), (1, 2), (2, 3), (3, 0)]


def ring(**settings: Any) -> Topology:
    return Topology(4, network(*RING).links, **settings)


def wires(bandwidth: int, count: int) -> Topology:
    """A ring with an odd wire from rank 1."""
    odd = {True: (bandwidth, 0.0, count), False: (9, 0.0, 1)}
    return Topology(4, [(src, dst, *odd[src == 1]) for src, dst in RING])


WRONG = {
    "it has 1 rank, with nobody to send to: give two ranks or more": Topology(1, []),
    "ranks 0-3 have no link: link these ranks with others, or leave out these ranks": network(),
    "rank 3 has no link: link this rank with others, or leave out this rank": network(*both((0, 1), (1, 2))),
    "it is in pieces, as nothing links ranks 0-1 with ranks 2-3: add links between them": network(
        *both((0, 1), (2, 3))
    ),
    "it is in pieces, as nothing links ranks 0, 2 with ranks 1, 3: add links between them": network(
        *both((0, 4), (2, 4), (1, 5), (3, 5))
    ),
    "no way leads from ranks 2-3 to ranks 0-1, as link 1 -> 2 has none back: add 2 -> 1": network(
        *both((0, 1), (2, 3)), (1, 2)
    ),
    "no way leads from ranks 0-1 to ranks 2-3, as link 2 -> 1 has none back: add 1 -> 2": network(
        *both((0, 1), (2, 3)), (2, 1)
    ),
    "link 1 -> 2 has bandwidth 0: give 1 or more, or leave the link out": wires(0, 1),
    "link 1 -> 2 has count 0: give 1 or more, or leave the link out": wires(9, 0),
    "its bandwidth is 0: give bytes per second, 1 or more": Topology.complete(3, 0, 0.0),
    "link 2 -> 2 leads to where it comes from: leave it out": network(*RING, (2, 2)),
    "switch 4 has no host behind: put hosts there, or leave out this switch": network(*RING, *both((0, 4))),
    "switches 4-5 have no host behind: put hosts there, or leave out these switches": network(
        *RING, *both((0, 4), (4, 5))
    ),
    "switch 4 has no link: number switches from 4 on, without gaps": network(*RING, *both((0, 5), (5, 1))),
    "switch 2 has capacity 0: give bytes per second, or leave it out": Topology(
        2, [(0, 2, 9, 0.0), (2, 0, 9, 0.0), (1, 2, 9, 0.0), (2, 1, 9, 0.0)], capacities={2: 0}
    ),
    "it gives a capacity to node 1: only switches have one, from 4 on": ring(capacities={1: 5}),
    "its sides are [3]: give sides whose product is 4, the number of ranks": ring(sides=[3], wraps=[True]),
    "its sides are [4] and its wraps []: give one wrap for each side": ring(sides=[4]),
    "it has places for 1 ranks: give one for each of 4, or none": ring(places=[[0]]),
    "its places are not equally deep: give as many numbers for each rank: site, rack, host": ring(
        places=[[0], [0, 1], [0], [0]]
    ),
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_and_what_to_change(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        topology.check(WRONG[text])
    assert str(raised.value) == f"the network: {text}"


@pytest.mark.parametrize("text", WRONG)
def test_no_builder_takes_it(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        build("all_reduce", "ring", WRONG[text])
    assert str(raised.value) == f"the network: {text}"


@pytest.mark.parametrize("sound", [*ALL, network(*RING), Topology.complete(2, 1, 0.0)])
def test_sound_networks_pass(sound: Topology) -> None:
    topology.check(sound)


def test_a_switch_goes_with_its_last_host() -> None:
    left = topology.survivors(topology.sites([[2, 1], [3]]), ranks=[2])
    assert (left.ranks, left.nodes) == (5, 8)
    assert left.places == [[0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 0, 1], [1, 0, 2]]


def test_a_network_that_falls_apart_is_said() -> None:
    with pytest.raises(
        UsageError, match=r"line 5: it is in pieces, as nothing links ranks 0-1 with ranks 2-3"
    ):
        topology.survivors(topology.line(5), ranks=[2])


@given(st.sampled_from(ALL), st.data())
def test_what_is_left_is_a_network_or_refused(whole: Topology, data: st.DataObject) -> None:
    ranks = data.draw(st.sets(st.integers(0, whole.ranks - 1), max_size=2))
    links = data.draw(st.sets(st.sampled_from([link[:2] for link in whole.links]), max_size=2))
    try:
        left = topology.survivors(whole, ranks, links)
    except UsageError:
        return
    assert left.ranks == whole.ranks - len(ranks)
    assert build("all_reduce", "ring", left)
