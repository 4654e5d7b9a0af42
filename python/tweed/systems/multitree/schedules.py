"""Schedules on networks: what they take, what bounds them, how they grow, a line of notes each; and `Times`,
which finds times in such lines."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import NamedTuple

from tweed.collective import Builder, Schedule, Send, bounds, build, find, topology
from tweed.collective.chooser import fitting, slicing
from tweed.collective.topology import Topology, Wire
from tweed.report.notes import Line, Notes
from tweed.rng import uniform
from tweed.simulate import models, run, stragglers, workload

#: Bytes per second of a link in this experiment: D/b is a buffer's bytes over it.
BANDWIDTH = 16_000_000_000
#: The quickest of all builders at each size.
BEST = "best of all"
#: Bytes: from where to where the paper's sizes go.
SMALL, LARGE = 32 << 10, 64 << 20
SIZES = (SMALL, 1 << 17, 1 << 19, 1 << 21, 1 << 23, LARGE)
#: The network on which models are trained.
TRAINED = "torus 8x8"
#: The links of the paper's section V.
WIRE = Wire(BANDWIDTH, 150e-9)
#: Bytes of a head flit, and of a packet's payload.
HEADER, PACKET = 16, 256
#: Sizes at which the engine's slices are tried, besides whole chunks.
SLICED = (1 << 21, 1 << 23, LARGE)
#: Pieces of fewer bytes are not worth a message.
LEAST = 64
#: What an all-reduce is made of.
PHASES = ("all_gather", "reduce_scatter")
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

#: Networks that the paper does not have: measured beside the bounds.
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
    "three sites of four": lambda: topology.sites([[4], [4], [4]]),
    "five sites of two": lambda: topology.sites([[2], [2], [2], [2], [2]]),
}
#: Those of them on which all-reduces are measured, beside what must cross between sites.
SITED = ("two sites of four", "three uneven sites", "three sites of four", "five sites of two")


def uneven(network: Topology, seed: int) -> Topology:
    """Gives each direction of the same links all, half or a quarter of its bandwidth, by chance."""
    links = [
        (src, dst, bandwidth >> int(3 * uniform(seed, number)), latency_s, count)
        for number, (src, dst, bandwidth, latency_s, count) in enumerate(network.links)
    ]
    return Topology(network.ranks, links, network.name, places=network.places)


_BASES = (
    topology.fat_tree(4, 3, 2),
    topology.bigraph(2, 6),
    topology.dragonfly(3, 2, 2),
    topology.sites([[3, 2], [3], [2, 2]]),
)
#: By network and seed; behind switches, and uneven.
UNEVEN: dict[str, Callable[[], Topology]] = {
    f"{base.name}, seed {seed}": partial(uneven, base, seed) for base in _BASES for seed in range(6)
}


@cache
def network(name: str) -> Topology:
    """A network by its name, or another torus."""
    if made := (NETWORKS | ELSEWHERE | UNEVEN).get(name):
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
        notes.log(f"{cell.network}, {cell.collective}: {row.name}, {pieces} pieces")
        schedule = row.schedule(cell.collective, network(cell.network), pieces)
        for size in missing:
            worth = pieces == row.pieces[0] or (size >= LEAST * schedule.chunks and len(schedule) <= MOST)
            whole, sliced = _seconds(schedule, cell, size) if worth else (None, None)
            found = {"pieces": pieces, "numbytes": size, "seconds": whole, "sliced_s": sliced}
            notes.add({"kind": "time"} | facts | found)


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
    for collective in ("all_reduce", *PHASES):
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
    found = {
        "ranks": links.ranks,
        "steps": last + 1,
        "sends": len(gather),
        "crowded": _crowded(gather, links),
        "reversed": turned == {(send.step, send.src, send.dst, send.chunk) for send in scatter.sends},
    }
    notes.add(facts | found)


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
    notes.log(f"{builder} for {side * side} ranks")
    begun = time.process_time()
    schedule = find("all_gather", builder).schedule("all_gather", network(f"torus {side}x{side}"))
    notes.add(facts | {"seconds": time.process_time() - begun, "sends": len(schedule)})


class Cell(NamedTuple):
    """What was timed: a builder of a collective on a network."""

    network: str
    collective: str
    builder: str
    packets: bool = False


class Times:
    """The seconds of the number of pieces that was quickest, by cell and size.

    `BEST` is a builder too: at every size the quickest of those that send messages.

    Args:
      lines: the notes.
      sliced: chunks may be cut into the engine's slices; False: they cross whole, as in the paper.
    """

    def __init__(self, lines: Sequence[Line], sliced: bool = True) -> None:
        self._keys = ("seconds", "sliced_s") if sliced else ("seconds",)
        self._by_cell: defaultdict[Cell, dict[int, float]] = defaultdict(dict)
        self._who: dict[tuple[str, str, int], str] = {}
        for line in lines:
            if line["kind"] == "time":
                for seconds in filter(None, (line[key] for key in self._keys)):
                    self._add(line, seconds)

    def _add(self, line: Line, seconds: float) -> None:
        cell = Cell(line["network"], line["collective"], line["builder"], line["packets"])
        size = line["numbytes"]
        if seconds < self._by_cell[cell].get(size, float("inf")):
            self._by_cell[cell][size] = seconds
        best = Cell(cell.network, cell.collective, BEST)
        if not cell.packets and seconds < self._by_cell[best].get(size, float("inf")):
            self._by_cell[best][size] = seconds
            self._who[cell.network, cell.collective, size] = cell.builder

    def of(self, cell: Cell) -> dict[int, float]:
        """Seconds by size; empty if it was not timed."""
        return self._by_cell.get(cell, {})

    def seconds(self, cell: Cell, size: int) -> float | None:
        """The seconds at one size; None if it was not timed."""
        return self.of(cell).get(size)

    def share(self, cell: Cell, size: int) -> float | None:
        """The seconds in multiples of D/b; None if it was not timed."""
        seconds = self.seconds(cell, size)
        return None if seconds is None else seconds * BANDWIDTH / size

    def winner(self, network: str, collective: str, size: int) -> str:
        """The builder that is the quickest of all."""
        return self._who[network, collective, size]

    def networks(self, collective: str = "all_reduce") -> list[str]:
        """The networks that were timed, in the order in which they were."""
        return list(dict.fromkeys(cell.network for cell in self._by_cell if cell.collective == collective))

    def builders(self, network: str, collective: str = "all_reduce") -> list[str]:
        """The builders that were timed there, in the order of the table of builders, and `BEST`."""
        cells = [cell for cell in self._by_cell if cell[:2] == (network, collective)]
        names = dict.fromkeys(cell.builder for cell in cells if cell.builder != BEST)
        return [*names, BEST] if cells else []

    def sizes(self, network: str) -> list[int]:
        """The sizes at which all-reduces were timed there."""
        return sorted(self.of(Cell(network, "all_reduce", BEST)))

    def step(self, cell: Cell, model: str, overlap: bool) -> workload.Step | None:
        """A training step of one of `simulate.models.MODELS`; None if a size was not timed."""
        load, known = models.MODELS[model](), self.of(cell)
        if any(layer.numbytes not in known for layer in load.layers if layer.numbytes):
            return None
        return workload.step(load, known.__getitem__, overlap=overlap)


def ranks(torus: str) -> int:
    """How many a torus of two sides has, by its name; 0: it is none."""
    x, _, y = torus.removeprefix("torus ").partition("x")
    return int(x) * int(y) if torus.startswith("torus ") else 0


def weak(torus: str) -> int:
    """The size of weak scaling on a torus: 375 KiB per rank."""
    return 375 * 1024 * ranks(torus)


def ratio(slow: float | None, quick: float | None) -> float | None:
    """How many times as long; None where one of them is not known."""
    return None if slow is None or quick is None else slow / quick
