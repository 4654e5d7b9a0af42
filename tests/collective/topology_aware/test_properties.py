"""Every builder of the table, on networks drawn at random: exact, over real links, within the bounds."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.collective.following import contributors, result
from tests.collective.topology.families import ALL, MEMBERS, MORE, networks
from tests.collective.topology_aware.times import took
from tweed.collective import COLLECTIVES, Builder, Schedule, bounds, build, builders, find, topology
from tweed.collective.chooser import fitting
from tweed.collective.topology import Topology
from tweed.collective.topology.base import shortest_paths
from tweed.collective.topology_aware.trees import Edge, Tree, schedule_of
from tweed.simulate import run

Vectors = dict[tuple[int, int], np.ndarray]


def sums(schedule: Schedule, seed: int) -> tuple[Vectors, Vectors]:
    """What every place ends with, and what it should: random integers, summed along the sends."""
    draw = np.random.default_rng(seed)
    shape = (schedule.ranks, schedule.chunks, 3)
    own = draw.integers(-(2**31), 2**31, shape)
    given = {chunk: contributors(schedule, chunk) for chunk in range(schedule.chunks)}
    values = {(rank, chunk): own[rank, chunk] for chunk, ranks in given.items() for rank in ranks}
    for _, step in groupby(schedule, key=lambda send: send.step):
        carried = [(send, values[send.src, send.chunk]) for send in step]
        for send, value in carried:
            place = send.dst, send.chunk
            values[place] = values[place] + value if send.reduce else value
    places = result(schedule)
    wanted = {(rank, chunk): own[given[chunk], chunk].sum(axis=0) for rank, chunk in places}
    return {place: values[place] for place in places}, wanted


def proven(schedule: Schedule, network: Topology) -> None:
    """Exact, over real links, and within the bounds."""
    seed = schedule.digest
    found, wanted = sums(schedule, seed)
    assert all(np.array_equal(found[place], wanted[place]) for place in wanted), f"seed {seed}"
    for send in schedule:
        ends = [send.src, *send.route, send.dst]
        assert network.is_complete or all(map(network.has_link, ends, ends[1:]))
    numbytes = 1000 * schedule.chunks
    seconds = took(schedule, numbytes, network)
    least = bounds.of(schedule.collective, network, schedule.root).limit(numbytes)
    assert seconds >= least.seconds(numbytes) * (1 - 1e-6) - 1e-8, least


ROOTLESS = ("all_reduce", "all_gather", "reduce_scatter")
NAMES = [row.name for row in builders("all_reduce")]
DRAWN = st.one_of(networks(), networks(even=True), MEMBERS)


def collectives(name: str) -> list[str]:
    """What it makes, but for patterns with a root: they work by number, on a complete graph."""
    made = [(one, row) for one in COLLECTIVES for row in builders(one) if row.name == name]
    return [one for one, row in made if one in ROOTLESS or one not in row.patterns]


def taken(draw: st.DrawFn, row: Builder) -> Topology:
    """Any network, or if the builder has no schedule for it, one for which it has."""
    network = draw(DRAWN)
    if row.refuses(network):
        network = draw(st.sampled_from([each for each in (*ALL, *MORE) if not row.refuses(each)]))
    return network


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=10)
@given(data=st.data())
def test_a_builder_is_exact_and_within_the_bounds(name: str, data: st.DataObject) -> None:
    collective = data.draw(st.sampled_from(collectives(name)))
    row = find(collective, name)
    network = taken(data.draw, row)
    pieces = data.draw(st.sampled_from(row.pieces[:3]))
    proven(row.schedule(collective, network, pieces), network)


@pytest.mark.parametrize("name", NAMES)
def test_a_builder_gives_the_same_schedule_again(name: str) -> None:
    row = find("all_reduce", name)
    network = next(each for each in (*ALL, *MORE) if not row.refuses(each))
    one, other = (row.schedule("all_reduce", network, row.pieces[-1]) for _ in range(2))
    assert one.digest == other.digest


def test_every_network_has_builders_for_what_training_needs() -> None:
    for network in (*ALL, *MORE):
        for collective in ROOTLESS:
            assert fitting(collective, network)


def a_tree(draw: st.DrawFn, network: Topology, root: int) -> Tree:
    """Any rank may be any other's child, along a shortest way; each edge some steps after its parent's."""
    joined, edges = {root: -1}, []
    for child in draw(st.permutations([rank for rank in range(network.ranks) if rank != root])):
        parent = draw(st.sampled_from(sorted(joined)))
        joined[child] = joined[parent] + draw(st.integers(1, 3))
        edges.append(Edge(parent, child, joined[child], shortest_paths(network, parent)[child]))
    return Tree(root, tuple(edges))


Forests = tuple[Topology, list[Tree], list[Tree], int]


@st.composite
def forests(draw: st.DrawFn) -> Forests:
    """Trees down a network, and up: equally many from every rank."""
    network = draw(st.one_of(networks(), st.sampled_from(ALL[:4])))
    roots = [
        rank for rank in range(network.ranks) for _ in range(draw(st.shared(st.integers(1, 2), key="n")))
    ]
    down = [a_tree(draw, network, root) for root in roots]
    up = [a_tree(draw, network.reversed(), root) for root in roots]
    return network, down, up, draw(st.integers(1, 3))


@given(forests(), st.sampled_from(ROOTLESS))
def test_any_trees_make_a_schedule(
    drawn: tuple[Topology, list[Tree], list[Tree], int], collective: str
) -> None:
    network, down, up, pieces = drawn
    proven(schedule_of(down, "drawn", collective, network, up=up, pieces=pieces), network)


@given(networks(), st.integers(0, 5), st.sampled_from(["broadcast", "reduce"]))
def test_trees_of_one_root_broadcast_and_reduce(network: Topology, root: int, collective: str) -> None:
    root %= network.ranks
    tree, back = (star(grown, root) for grown in (network, network.reversed()))
    proven(schedule_of([tree], "star", collective, network, up=[back]), network)


def star(network: Topology, root: int) -> Tree:
    ways = shortest_paths(network, root)
    edges = (Edge(root, rank, rank, ways[rank]) for rank in range(network.ranks) if rank != root)
    return Tree(root, tuple(edges))


def test_the_least_time_is_met_where_it_can_be() -> None:
    network = topology.ring(2)
    schedule = build("all_gather", "ring", network)
    seconds = run(schedule, 2 * 10**6, network).seconds
    found = bounds.of("all_gather", network)
    assert seconds == pytest.approx(found.seconds(2 * 10**6) + found.latency.fixed_s)
