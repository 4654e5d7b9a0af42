"""Bounds: those of the paper's table, and small networks against all cuts there are."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.collective.topology_aware.times import took
from tweed.collective import COLLECTIVES, bounds, build, topology
from tweed.collective.partitions import partitions
from tweed.collective.topology import GIGABIT, NVLINK, Topology
from tweed.errors import UsageError

# In units of D/b: least over all links, by cuts, and by the cuts of both phases; steps of one phase.
TABLE = {
    "torus 4x4": (topology.torus(4, 4), 30 / 64, 1 / 4, 30 / 64, 4),
    "torus 8x8": (topology.torus(8, 8), 126 / 256, 1 / 4, 126 / 256, 16),
    "mesh 2x2": (topology.mesh(2, 2), 6 / 8, 1 / 2, 6 / 8, 2),
    "mesh 4x4": (topology.mesh(4, 4), 30 / 48, 1 / 2, 30 / 32, 8),
    "mesh 8x8": (topology.mesh(8, 8), 126 / 224, 1 / 2, 126 / 128, 32),
    "fat-tree of 16": (topology.fat_tree(4, 4, 4), 30 / 16, 1, 30 / 16, 15),
    "BiGraph of 32": (topology.bigraph(4, 8), 62 / 32, 1, 62 / 32, 31),
    "DGX-1": (topology.dgx1(GIGABIT), 14 / 48, 1 / 6, 14 / 48, 2),
    "flat": (Topology.complete(5, GIGABIT.bandwidth, 1e-4), 8 / 5, 1, 8 / 5, 4),
}


@pytest.mark.parametrize("name", TABLE)
def test_the_table_of_the_paper(name: str) -> None:
    network, links, cut, phased, steps = TABLE[name]
    found = bounds.of("all_reduce", network)
    assert found.phased is not None
    units = [float(bound.per_byte) * GIGABIT.bandwidth for bound in (found.links, found.cut, found.phased)]
    assert units == pytest.approx([links, cut, phased])
    assert bounds.of("all_gather", network).steps == steps
    assert found.steps == 2 * steps


THREE_SITES = topology.sites([[2, 2], [4], [1]])

WORDS = {
    "30 times the buffer over all links out of ranks": ("all_reduce", topology.mesh(4, 4)),
    "1/2 of the buffer over the link out of ranks 4-7": ("all_gather", topology.sites([[4], [4]])),
    "1/2 of the buffer over the link out of ranks 0-3": ("reduce_scatter", topology.sites([[4], [4]])),
    "8 times the buffer over what switch 5 can take": ("all_reduce", topology.star(5, capacity=10**6)),
    "15/16 of the buffer over the 6 links into rank 0": ("all_gather", topology.dgx2()),
    "2 times the buffer over all links, each part by the fewest": ("scatter", topology.line(5)),
    "4 times the buffer over the 6 links between ranks 0-3, ranks 4-7 and rank 8": (
        "all_reduce",
        THREE_SITES,
    ),
    "8 times the buffer over the 20 links between 5 groups of ranks": (
        "all_reduce",
        topology.sites([[2], [2], [2], [2], [2]]),
    ),
}


@pytest.mark.parametrize("why", WORDS)
def test_the_limit_is_named(why: str) -> None:
    collective, network = WORDS[why]
    found = bounds.of(collective, network)
    assert why in {found.limit(1 << 30).why, found.links.why}


def test_short_messages_are_limited_by_the_longest_way() -> None:
    found = bounds.of("all_reduce", topology.mesh(4, 4))
    assert found.limit(16).name == "latency"
    assert found.seconds(16) == pytest.approx(6 * GIGABIT.latency_s)
    assert found.limit(16).why == "the way from rank 0 to rank 15"


def test_what_is_reached_is_a_share() -> None:
    found = bounds.of("all_gather", topology.dgx1())
    assert found.seconds(1 << 30) == pytest.approx((1 << 30) * 7 / 8 / 6 / NVLINK.bandwidth)
    assert found.reached(2 * found.seconds(1 << 30), 1 << 30) == pytest.approx(0.5)


def test_links_without_latency_are_ways_too() -> None:
    network = Topology(3, [(0, 1, 9, 0.0), (1, 2, 9, 0.0), (2, 0, 9, 0.5)])
    assert bounds.of("all_gather", network).latency.fixed_s == 0.5


@st.composite
def networks(draw: st.DrawFn) -> Topology:
    """Four to six ranks, a ring among them one way, and more links."""
    ranks = draw(st.integers(2, 5))
    pairs = st.tuples(st.integers(0, ranks - 1), st.integers(0, ranks - 1)).filter(lambda ab: ab[0] != ab[1])
    ends = sorted({(a, (a + 1) % ranks) for a in range(ranks)} | draw(st.sets(pairs, max_size=8)))
    return Topology(ranks, [(a, b, draw(st.integers(1, 9)), 1e-6, draw(st.integers(1, 2))) for a, b in ends])


def needed(collective: str, inside: set[int], ranks: int, root: int) -> Fraction:
    """By counting (from, to): a value of `from` must come to `to`."""
    outside = set(range(ranks)) - inside
    if collective in ("all_gather", "gather"):
        to = outside if collective == "all_gather" else outside & {root}
        return Fraction(len(inside) if to else 0, ranks)
    if collective in ("reduce_scatter", "scatter"):
        src = inside if collective == "reduce_scatter" else inside & {root}
        return Fraction(len(outside) if src else 0, ranks)
    if collective == "all_to_all":
        return Fraction(len(inside) * len(outside), ranks**2)
    goes = {"all_reduce": True, "broadcast": root in inside, "reduce": root in outside}
    return Fraction(goes[collective])


@given(networks(), st.sampled_from(COLLECTIVES), st.data())
def test_no_cut_says_more(network: Topology, collective: str, data: st.DataObject) -> None:
    ranks = network.ranks
    root = data.draw(st.integers(0, ranks - 1))
    if collective not in ("broadcast", "reduce", "gather", "scatter"):
        root = 0
    most = Fraction(0)
    for size in range(1, ranks):
        for inside in combinations(range(ranks), size):
            leaving = sum(bw * n for a, b, bw, _, n in network.links if a in inside and b not in inside)
            most = max(most, needed(collective, set(inside), ranks, root) / leaving)
    found = bounds.of(collective, network, root).cut.per_byte
    if collective in ("gather", "scatter", "all_to_all"):
        assert 0 < found <= most
    else:
        assert found == most


def divisions(nodes: list[int]) -> Iterator[list[set[int]]]:
    """All ways to divide nodes into parts."""
    if not nodes:
        yield []
        return
    for parts in divisions(nodes[1:]):
        yield [{nodes[0]}, *parts]
        for at, part in enumerate(parts):
            yield [*parts[:at], {nodes[0], *part}, *parts[at + 1 :]]


@given(networks(), st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"]))
def test_no_division_says_more(network: Topology, collective: str) -> None:
    def bound(parts: list[set[int]]) -> Fraction:
        part_of = {node: at for at, part in enumerate(parts) for node in part}
        between = sum(bw * n for a, b, bw, _, n in network.links if part_of[a] != part_of[b])
        return Fraction((1 + (collective == "all_reduce")) * (len(parts) - 1), between or 1)

    ranks = list(range(network.ranks))
    found = bounds.of(collective, network).links.per_byte
    assert bound([{rank} for rank in ranks]) <= found <= max(bound(parts) for parts in divisions(ranks))


def test_between_sites_the_bound_is_reached() -> None:
    """Cuts alone promised three quarters of the time."""
    network, numbytes = topology.sites([[4], [4], [4]]), 256 << 20
    found = bounds.of("all_reduce", network)
    seconds = took(build("all_reduce", "forest", network, 4), numbytes, network, piece=1 << 18, window=16)
    assert found.seconds(numbytes) == pytest.approx(4 / 3 * found.cut.seconds(numbytes))
    assert seconds == pytest.approx(found.seconds(numbytes), rel=0.01)


DIVIDED = [
    (topology.sites([[2, 1], [3]]), {(0, 1, 2, 6, 7, 8), (3, 4, 5, 9)}),
    (topology.fat_tree(2, 2, 1), {(0, 1, 4), (2, 3, 5)}),
    (
        Topology(4, [(0, 1, 9, 0, 1), (1, 0, 1, 0, 1), (1, 2, 3, 0, 1), (2, 3, 9, 0, 2), (3, 0, 2, 0, 1)]),
        {(0, 1), (2, 3)},
    ),
]


@pytest.mark.parametrize(("network", "parts"), DIVIDED, ids=lambda value: getattr(value, "name", ""))
def test_networks_are_divided_where_they_are_narrow(network: Topology, parts: set[tuple[int, ...]]) -> None:
    assert parts in [{tuple(sorted(part)) for part in found} for found in partitions(network)]


@given(networks())
def test_every_rank_is_in_one_part(network: Topology) -> None:
    for parts in partitions(network):
        inside = [node for part in parts for node in part]
        assert len(parts) > 1 and len(inside) == len(set(inside)) and {*range(network.ranks)} <= {*inside}


def test_what_is_asked_wrongly_is_said() -> None:
    with pytest.raises(UsageError, match="there is no collective 'sum'; use one of all_reduce"):
        bounds.of("sum", topology.line(2))
