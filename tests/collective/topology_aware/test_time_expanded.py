"""The time-expanded builder: the targets of TACOS' own regression tests, by the simulator's clock."""

from __future__ import annotations

import pytest

from tests.collective.topology.families import DIRECT, SWITCHED
from tests.collective.topology_aware.times import took
from tweed.collective import bounds, build, topology
from tweed.collective.chooser import slicing
from tweed.collective.topology import Topology, Wire
from tweed.collective.topology_aware.time_expanded import search
from tweed.errors import UsageError
from tweed.simulate import run

GIB = 1 << 30


def wire(gib: int, latency_s: float = 0.5e-6, count: int = 1) -> Wire:
    return Wire(gib * GIB, latency_s, count)


def two_speeds(rows: Wire, columns: Wire) -> Topology:
    """A mesh 5x5 with other links along its rows than along its columns."""
    pairs = [(src, dst) for src, dst, *_ in topology.mesh(5, 5).links]
    kinds = [rows if src // 5 == dst // 5 else columns for src, dst in pairs]
    links = [
        (*pair, kind.bandwidth, kind.latency_s, kind.count) for pair, kind in zip(pairs, kinds, strict=True)
    ]
    return Topology(25, links, "mesh 5x5, two speeds")


TARGETS = [
    (topology.mesh(5, 5, wire=wire(50)), 1, GIB, 9606.0),
    (topology.torus(3, 3, 3, wire=wire(50)), 1, GIB, 3706.2),
    (topology.mesh(3, 3, 3, wire=wire(50)), 1, GIB, 6671.17),
    (two_speeds(wire(50), wire(75)), 1, GIB, 8005.0),
    (two_speeds(wire(75), wire(50)), 1, GIB, 8005.0),
    (topology.mesh(10, 10, wire=wire(100, 1e-6)), 2, GIB, 5049.0),
    (topology.torus(3, 4, 5, wire=wire(50)), 2, 2 * GIB, 6676.67),
    (topology.mesh(3, 4, 5, wire=wire(50)), 2, 2 * GIB, 13353.33),
]
"""Network, chunks of every rank, bytes in all, microseconds: the figures of TACOS."""


@pytest.mark.parametrize(
    ("network", "pieces", "numbytes", "target_us"), TARGETS, ids=lambda value: str(value)
)
@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter", "all_reduce"])
def test_the_targets_are_met_within_one_per_cent(
    collective: str, network: Topology, pieces: int, numbytes: int, target_us: float
) -> None:
    schedule = build(collective, "time_expanded", network, pieces)
    seconds = run(schedule, numbytes, network).seconds
    phases = 2 if collective == "all_reduce" else 1
    assert seconds is not None
    assert seconds * 1e6 <= 1.01 * phases * target_us


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize(
    ("network", "slack"),
    # Switches take messages in the order in which they come, and no rank can keep another's back.
    [(network, 1.01) for network in DIRECT] + [(network, 1.2) for network in SWITCHED],
    ids=lambda value: str(value),
)
def test_the_schedule_takes_the_time_that_it_was_planned_to_take(
    network: Topology, slack: float, collective: str
) -> None:
    chunk = 1 << 20
    schedule, planned_s = search(collective, network, pieces=2, chunk=chunk, tries=4)
    seconds = took(schedule, 2 * chunk * network.ranks, network)
    assert seconds <= slack * planned_s


@pytest.mark.parametrize(("sides", "steps"), [((4, 4), 4), ((8, 8), 16)])
def test_a_torus_takes_no_more_rounds_than_a_rank_has_links(sides: tuple[int, int], steps: int) -> None:
    schedule = build("all_gather", "time_expanded", topology.torus(*sides))
    assert schedule.cost(1).steps == steps


@pytest.mark.parametrize(
    "network",
    [topology.torus(8, 8), topology.random_regular(32, 4, seed=1), topology.fat_tree(4, 4, 4)],
    ids=lambda network: network.name,
)
def test_short_chunks_take_fewer_links(network: Topology) -> None:
    long, short = (
        run(build("all_gather", name, network), 16 << 10, network).seconds
        for name in ("time_expanded", "time_expanded_latency")
    )
    assert long and short
    assert short < 0.8 * long


def test_a_fat_tree_takes_the_time_of_its_ports() -> None:
    network = topology.fat_tree(8, 8, 8)
    seconds = took(build("all_gather", "time_expanded", network), 64 << 20, network)
    assert seconds <= 1.005 * bounds.of("all_gather", network).seconds(64 << 20)


def test_sites_take_the_time_of_the_links_between() -> None:
    """Each chunk crosses once, and the links between the sites never idle; in the engine's slices."""
    network = topology.sites([[8, 8], [8, 8]])
    schedule = build("all_gather", "time_expanded", network)
    piece, window = slicing(schedule.chunks)
    seconds = took(schedule, 32 << 20, network, piece=piece, window=window)
    assert seconds <= 1.06 * bounds.of("all_gather", network).seconds(32 << 20)


def test_links_side_by_side_are_used() -> None:
    single, double = (topology.ring(6, wire=wire(1, 0.0, count)) for count in (1, 2))
    seconds = [
        run(build("all_gather", "time_expanded", network, 4), 24 << 20, network).seconds
        for network in (single, double)
    ]
    assert seconds[0] and seconds[1]
    assert seconds[1] < 0.6 * seconds[0]


def test_late_and_slow_ranks_do_not_stop_it() -> None:
    network = topology.torus(4, 4)
    schedule = build("all_reduce", "time_expanded", network, 2)
    for seed in range(5):
        result = run(schedule, 1 << 20, network, seed=seed, late_s=0.01, jitter_s=0.001, slow={seed: 3.0})
        assert result.seconds, f"seed {seed}"


def test_another_seed_is_another_schedule() -> None:
    network = topology.torus(4, 4)
    digests = {search("all_gather", network, seed=seed, tries=1)[0].digest for seed in (1, 2, 1)}
    assert len(digests) == 2


def test_a_flat_network_is_refused() -> None:
    with pytest.raises(UsageError, match="share one core"):
        build("all_gather", "time_expanded", Topology.complete(4, GIB, 1e-6))
