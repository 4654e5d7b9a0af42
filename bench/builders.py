"""Time and memory to build and check a schedule for a network, against the number of ranks.

Every point is a fresh process: `python -m bench.builders BUILDER NETWORK RANKS` prints the row of one.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from math import isqrt
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tweed.collective import build, topology
from tweed.collective.topology import Topology, Wire

if TYPE_CHECKING:  # a point needs no torch
    from bench.run import Row

PART = "builders"
#: A point that takes longer is given up.
LIMIT_S = 600.0
UNEVEN = "uneven torus"
_GIGABITS = (25, 50, 100, 200)
_LATENCY_S = 1e-6
_FORGET_PEAK = "5"  # proc(5), clear_refs: the peak of resident memory starts anew


class Sweep(NamedTuple):
    """One builder on one kind of network, with so many ranks."""

    builder: str
    network: str
    ranks: tuple[int, ...]
    pieces: int = 1


_GRID, _TREE, _FEW = (64, 256, 512, 1024), (64, 256, 1024), (16, 36, 64)
FULL = (
    *(Sweep("multitree", network, _GRID) for network in ("torus", UNEVEN)),
    Sweep("multitree", "fat-tree", _TREE),
    Sweep("multitree_split", "torus", _GRID, pieces=2),
    *(Sweep("time_expanded", network, _GRID) for network in ("torus", UNEVEN)),
    *(Sweep("forest", network, _FEW) for network in ("torus", UNEVEN)),
    Sweep("forest", "fat-tree", (16, 64)),
)
QUICK = (
    Sweep("multitree", "torus", (64, 256)),
    Sweep("time_expanded", "torus", (64, 256)),
    Sweep("forest", "torus", (16,)),
)


def built(sweeps: tuple[Sweep, ...]) -> Iterator[Row]:
    """A row for each point: an all-reduce, built and checked; `cpu_s` is None where it took too long."""
    for sweep in sweeps:
        for ranks in sweep.ranks:
            yield _alone(sweep, ranks)


def _alone(sweep: Sweep, ranks: int) -> Row:
    names = (sweep.builder, sweep.network, str(ranks), str(sweep.pieces))
    print(f"  {' '.join(names)}", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "bench.builders", *names]
    try:
        found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return _row(sweep, ranks)
    row: Row = json.loads(found.stdout)
    return row


def _row(sweep: Sweep, ranks: int) -> Row:
    row: Row = {"part": PART, "side": sweep.builder, "network": sweep.network, "ranks": ranks}
    return row | {"pieces": sweep.pieces, "sends": None, "cpu_s": None, "peak_bytes": None, "bytes": None}


def point(sweep: Sweep, ranks: int) -> Row:
    """The row of one point, measured in this process; memory is its growth at most."""
    network = _NETWORKS[sweep.network](ranks)
    Path("/proc/self/clear_refs").write_text(_FORGET_PEAK)
    before, began = _status("VmRSS"), time.process_time()
    schedule = build("all_reduce", sweep.builder, network, sweep.pieces)
    cpu_s = time.process_time() - began
    return _row(sweep, ranks) | {
        "sends": len(schedule),
        "cpu_s": round(cpu_s, 4),
        "peak_bytes": _status("VmHWM") - before,
        "bytes": schedule.nbytes,
    }


def _status(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None  # the kernel has written it so for many years
    return int(found[1]) << 10


def _torus(ranks: int) -> Topology:
    """As square as can be."""
    side = next(side for side in range(isqrt(ranks), 0, -1) if ranks % side == 0)
    return topology.torus(side, ranks // side, wire=_wire(_GIGABITS[-1]))


def _wire(gigabits: int) -> Wire:
    return Wire(gigabits * 125_000_000, _LATENCY_S)


def _uneven(ranks: int) -> Topology:
    """A torus whose links are of different speeds, and not the same in both directions."""
    draw = random.Random(ranks)
    links = [(a, b, _wire(draw.choice(_GIGABITS)).bandwidth, _LATENCY_S) for a, b, *_ in _torus(ranks).links]
    return Topology(ranks, links, name=f"uneven torus of {ranks}")


def _fat_tree(ranks: int) -> Topology:
    side = isqrt(ranks)
    return topology.fat_tree(side, side, side)


_NETWORKS: dict[str, Callable[[int], Topology]] = {
    "torus": _torus,
    UNEVEN: _uneven,
    "fat-tree": _fat_tree,
}


if __name__ == "__main__":
    builder, network, ranks, pieces = sys.argv[1:]
    print(json.dumps(point(Sweep(builder, network, (), int(pieces)), int(ranks))))
