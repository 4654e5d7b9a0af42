"""What the experiment on MultiTree measures, a line of notes each."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import pairwise

from tweed.collective import Builder, Schedule, Send, bounds, build, find, topology
from tweed.collective.chooser import fitting, slicing
from tweed.collective.topology import Topology, Wire
from tweed.simulate import run, stragglers
from tweed.systems.base import Notes
from tweed.systems.multitree_times import BANDWIDTH, LARGE, Cell

#: The links of the paper's section V.
WIRE = Wire(BANDWIDTH, 150e-9)
#: Bytes of a head flit, and of a packet's payload.
HEADER, PACKET = 16, 256
#: Sizes at which the engine's slices are tried, besides whole chunks.
SLICED = (1 << 21, 1 << 23, LARGE)
#: Pieces of fewer bytes are not worth a message.
LEAST = 64
#: Schedules of more sends are not run.
MOST = 600_000

NETWORKS: dict[str, Callable[[], Topology]] = {
    "torus 4x4": lambda: topology.torus(4, 4, wire=WIRE),
    "torus 8x8": lambda: topology.torus(8, 8, wire=WIRE),
    "mesh 4x4": lambda: topology.mesh(4, 4, wire=WIRE),
    "mesh 8x8": lambda: topology.mesh(8, 8, wire=WIRE),
    "mesh 9x9": lambda: topology.mesh(9, 9, wire=WIRE),
    "fat-tree 64": lambda: topology.fat_tree(8, 8, 8, WIRE),
    "BiGraph 32": lambda: topology.bigraph(4, 8, WIRE),
    "BiGraph 64": lambda: topology.bigraph(4, 16, WIRE),
}

#: Networks that the paper does not have: all-gathers are measured there, beside the cut bound.
ELSEWHERE: dict[str, Callable[[], Topology]] = {
    "line 8": lambda: topology.line(8, WIRE),
    "ring 8": lambda: topology.ring(8, WIRE),
    "torus 3x4x5": lambda: topology.torus(3, 4, 5, wire=WIRE),
    "hypercube 32": lambda: topology.hypercube(5, WIRE),
    "DGX-1": topology.dgx1,
    "DGX-2": topology.dgx2,
    "dragonfly 32": lambda: topology.dragonfly(4, 4, 2, WIRE),
    "random regular 32, degree 4": lambda: topology.random_regular(32, 4, 7, WIRE),
    "two sites of four": lambda: topology.sites([[4], [4]]),
    "three uneven sites": lambda: topology.sites([[4, 2], [3], [2, 2]]),
}


@cache
def network(name: str) -> Topology:
    """A network by its name, or another torus."""
    if made := (NETWORKS | ELSEWHERE).get(name):
        return made()
    return topology.torus(*(int(side) for side in name.removeprefix("torus ").split("x")), wire=WIRE)


def timed(notes: Notes, row: Builder, cell: Cell, sizes: Iterable[int]) -> None:
    """Simulates each size with each number of pieces; a schedule is built once, if any size is missing."""
    facts = cell._asdict()
    known = {
        (line["pieces"], line["numbytes"])
        for line in notes.lines
        if line["kind"] == "time" and line.items() >= facts.items()
    }
    for pieces in row.pieces:
        missing = [size for size in sizes if (pieces, size) not in known]
        if not missing:
            continue
        notes.tell(f"{cell.network}, {cell.collective}: {row.name}, {pieces} pieces")
        schedule = row.schedule(cell.collective, network(cell.network), pieces)
        for size in missing:
            worth = pieces == row.pieces[0] or (size >= LEAST * schedule.chunks and len(schedule) <= MOST)
            whole, sliced = _seconds(schedule, cell, size) if worth else (None, None)
            told = {"pieces": pieces, "numbytes": size, "seconds": whole, "sliced_s": sliced}
            notes.add({"kind": "time"} | facts | told)


def _seconds(schedule: Schedule, cell: Cell, size: int) -> tuple[float | None, float | None]:
    """With whole chunks as in the paper, and in the engine's slices; not those with packets."""
    links, packet = network(cell.network), PACKET if cell.packets else None
    whole = run(schedule, size, links, header=HEADER, packet=packet).seconds
    piece, window = slicing(schedule.chunks)
    if cell.packets or size not in SLICED or size <= piece * schedule.chunks:
        return whole, None
    return whole, run(schedule, size, links, header=HEADER, piece=piece, window=window).seconds


def bounded(notes: Notes, name: str, numbytes: int) -> None:
    """What no schedule can beat, as multiples of D/b; what limits `numbytes`; the steps there must be."""
    for collective in ("all_reduce", "all_gather"):
        facts = {"kind": "bound", "network": name, "collective": collective}
        if notes.has(**facts):
            continue
        found = bounds.of(collective, network(name))
        of = {"cut": found.cut, "links": found.links, "phased": found.phased}
        shares = {key: float(bound.per_byte * BANDWIDTH) for key, bound in of.items() if bound}
        notes.add(facts | shares | {"steps": found.steps, "why": found.limit(numbytes).why})


def grown(notes: Notes, name: str) -> None:
    """Whether MultiTree's schedules are what the paper says they are."""
    facts = {"kind": "trees", "network": name}
    if notes.has(**facts):
        return
    links = network(name)
    gather, scatter = (
        build(collective, "multitree", links) for collective in ("all_gather", "reduce_scatter")
    )
    last = gather.cost(1).steps - 1
    turned = {(last - send.step, send.dst, send.src, send.chunk) for send in gather.sends}
    told = {
        "ranks": links.ranks,
        "steps": last + 1,
        "sends": len(gather),
        "crowded": _crowded(gather, links),
        "reversed": turned == {(send.step, send.src, send.dst, send.chunk) for send in scatter.sends},
    }
    notes.add(facts | told)


def _crowded(schedule: Schedule, links: Topology) -> int:
    """How many links are used more often in a step than there are side by side."""
    counts = {(src, dst): count for src, dst, _, _, count in links.links}
    used = Counter((send.step, hop) for send in schedule.sends for hop in _hops(send))
    return sum(uses > counts[hop] for (_, hop), uses in used.items())


def _hops(send: Send) -> Iterator[tuple[int, int]]:
    return pairwise([send.src, *send.route, send.dst])


def straggled(notes: Notes, name: str, numbytes: int, seed: int) -> None:
    """An all-reduce with every rank up to 50 us late and a fifth of them up to 3 times as slow."""
    links = network(name)
    slow = stragglers(links.ranks, share=0.2, factor=3.0, seed=seed)
    for row in fitting("all_reduce", links):
        facts = {"kind": "straggling", "network": name, "builder": row.name, "seed": seed}
        if notes.has(**facts):
            continue
        schedule = build("all_reduce", row.name, links, row.pieces[0])
        even = run(schedule, numbytes, links, header=HEADER)
        uneven = run(schedule, numbytes, links, header=HEADER, seed=seed, late_s=50e-6, slow=slow)
        notes.add(facts | {"even_s": even.seconds, "uneven_s": uneven.seconds})


def built(notes: Notes, builder: str, side: int) -> None:
    """Processor seconds of an all-gather on a torus, proof included."""
    facts = {"kind": "building", "builder": builder, "ranks": side * side}
    if notes.has(**facts):
        return
    notes.tell(f"{builder} for {side * side} ranks")
    begun = time.process_time()
    schedule = find("all_gather", builder).schedule("all_gather", network(f"torus {side}x{side}"))
    notes.add(facts | {"seconds": time.process_time() - begun, "sends": len(schedule)})
