"""MultiTree: the trees of the paper, its steps, and what splitting and overlapping gain."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from itertools import pairwise

import pytest

from tests.collective.topology_aware.times import took
from tweed.collective import build, topology
from tweed.collective.topology import Topology, Wire
from tweed.simulate import run

WIRE = Wire(16_000_000_000, 150e-9)
LARGE = 64 << 20

Move = tuple[int, tuple[int, ...], int]
"""Step, nodes from parent to child, chunk."""


def oracle(network: Topology) -> set[Move]:
    """The paper's growth in its plainest form, trees by root: what each step sends."""
    out = defaultdict(list)
    for src, dst, *_ in network.links:
        out[src].append(dst)
    trees, moves, step = [[root] for root in range(network.ranks)], set(), 0
    while any(len(tree) < network.ranks for tree in trees):
        free = Counter({(src, dst): count for src, dst, _, _, count in network.links})
        parents = [list(tree) for tree in trees]
        growing = True
        while growing:
            growing = False
            for root, tree in enumerate(trees):
                if way := _way(parents[root], tree, out, free, network.ranks):
                    free.subtract(pairwise(way))
                    tree.append(way[-1])
                    moves.add((step, way, root))
                    growing = True
        step += 1
    return moves


def _way(
    parents: list[int], tree: list[int], out: dict[int, list[int]], free: Counter[tuple[int, int]], ranks: int
) -> tuple[int, ...]:
    """Over free links to the nearest rank outside the tree, through switches."""
    ways = deque((parent,) for parent in parents)
    seen = set()
    while ways:
        way = ways.popleft()
        for node in out[way[-1]]:
            if not free[way[-1], node] or node in seen or node in tree:
                continue
            if node < ranks:
                return (*way, node)
            seen.add(node)
            ways.append((*way, node))
    return ()


def moves(network: Topology, collective: str = "all_gather", pieces: int | None = None) -> list[Move]:
    name = "multitree" if pieces is None else "multitree_split"
    schedule = build(collective, name, network, pieces or 1)
    return [(s.step, (s.src, *s.route, s.dst), s.chunk) for s in schedule]


BY_ROOT = [
    topology.ring(5),
    topology.torus(4, 4),
    topology.hypercube(3),
    topology.dgx1(),
    topology.fat_tree(4, 4, 4),
    topology.bigraph(4, 8),
]


@pytest.mark.parametrize("network", BY_ROOT, ids=lambda network: network.name)
def test_the_trees_are_those_of_the_plainest_form(network: Topology) -> None:
    found = moves(network)
    assert len(found) == network.ranks * (network.ranks - 1)
    assert set(found) == oracle(network)


STEPS = {
    topology.torus(4, 4): 5,
    topology.torus(6, 6): 10,
    topology.torus(8, 8): 17,
    topology.mesh(2, 2): 2,
    topology.mesh(4, 4): 8,
    topology.mesh(8, 8): 32,
    topology.star(5): 4,
    topology.star(12): 11,
    topology.fat_tree(4, 4, 4): 15,
    topology.fat_tree(8, 8, 8): 63,
    topology.bigraph(4, 8): 31,
    topology.bigraph(4, 16): 63,
}


@pytest.mark.parametrize("network", STEPS, ids=lambda network: network.name)
def test_it_takes_no_more_steps_than_the_paper(network: Topology) -> None:
    assert build("all_gather", "multitree", network).cost(1).steps <= STEPS[network]
    assert build("all_reduce", "multitree", network).cost(1).steps <= 2 * STEPS[network]


SEVERAL = [topology.torus(4, 4), topology.mesh(3, 4), topology.dgx1(), topology.fat_tree(4, 4, 4)]


@pytest.mark.parametrize("network", SEVERAL, ids=lambda network: network.name)
@pytest.mark.parametrize("pieces", [None, 2, 8])
@pytest.mark.parametrize("collective", ["all_gather", "all_reduce"])
def test_no_link_is_used_twice_in_a_step(network: Topology, pieces: int | None, collective: str) -> None:
    counts = {(src, dst): count for src, dst, _, _, count in network.links}
    hops = ((step, hop) for step, way, _ in moves(network, collective, pieces) for hop in _hops(way))
    assert all(used <= counts[hop] for (_, hop), used in Counter(hops).items())


def _hops(way: tuple[int, ...]) -> list[tuple[int, int]]:
    return list(pairwise(way))


@pytest.mark.parametrize("network", SEVERAL, ids=lambda network: network.name)
def test_reduce_scatter_is_all_gather_turned_round(network: Topology) -> None:
    gathered = moves(network)
    last = max(step for step, _, _ in gathered)
    turned = {(last - step, way[::-1], chunk) for step, way, chunk in gathered}
    assert turned == set(moves(network, "reduce_scatter"))


def ratio(network: Topology, name: str, pieces: int = 1) -> float:
    """Of an all-reduce of `LARGE` bytes: time in units of bytes over bandwidth."""
    schedule = build("all_reduce", name, network, pieces)
    seconds = took(schedule, LARGE, network)
    return seconds * WIRE.bandwidth / LARGE


TORUS_4, TORUS_8 = topology.torus(4, 4, wire=WIRE), topology.torus(8, 8, wire=WIRE)
MESH_4, MESH_8 = topology.mesh(4, 4, wire=WIRE), topology.mesh(8, 8, wire=WIRE)


@pytest.mark.parametrize(
    ("network", "name", "pieces", "most"),
    [
        (TORUS_4, "multitree", 1, 0.6255),
        (TORUS_4, "multitree_split", 2, 0.5005),
        (TORUS_4, "multitree_split", 8, 0.4695),
        (TORUS_8, "multitree", 1, 0.532),
        (TORUS_8, "multitree_split", 2, 0.5008),
        (MESH_4, "multitree", 1, 1.001),
        (MESH_4, "multitree_split", 16, 0.712),
        (MESH_8, "multitree", 1, 1.001),
        (MESH_8, "multitree_split", 4, 0.718),
    ],
)
def test_large_buffers_take_as_long_as_their_steps(
    network: Topology, name: str, pieces: int, most: float
) -> None:
    """Pinned links keep the executor, which waits for nobody, from doing worse than in lockstep."""
    assert ratio(network, name, pieces) <= most


@pytest.mark.parametrize("name", ["multitree", "multitree_split"])
def test_late_ranks_and_messages_do_not_stop_it(name: str) -> None:
    network = topology.mesh(3, 3)
    schedule = build("all_reduce", name, network, 8)
    for seed in range(20):
        assert run(schedule, 1 << 20, network, seed=seed, late_s=0.01, jitter_s=0.001).seconds


def test_a_link_that_is_far_too_slow_is_left_out() -> None:
    quick = topology.torus(4, 4, wire=WIRE)
    slow = (0, 5, WIRE.bandwidth // 1000, WIRE.latency_s)
    uneven = Topology(quick.ranks, [*(link for link in quick.links), slow, (5, 0, *slow[2:])])
    for name in ("multitree", "multitree_split"):
        schedule = build("all_reduce", name, uneven, 2)
        assert schedule.cost(1 << 20).links.keys() == {(a, b) for a, b, *_ in quick.links}


def test_a_link_twice_as_fast_takes_twice_the_chunks() -> None:
    even = topology.torus(3, 4)
    links = [(a, b, speed * (2 if abs(a - b) < 4 else 1), late) for a, b, speed, late, _ in even.links]
    steps = [build("all_gather", "multitree", n).cost(1).steps for n in (even, Topology(12, links))]
    assert steps == [4, 3]


def test_the_memory_of_a_schedule_is_told() -> None:
    schedule = build("all_gather", "multitree", topology.torus(4, 4))
    assert 40 * len(schedule) < schedule.nbytes < 80 * len(schedule)
