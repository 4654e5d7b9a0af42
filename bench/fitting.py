"""All-reduces over networks whose links are a topology's: what the simulator predicts, and what they take.

For each network, the builders that `collective.planning` has as worth trying, each in a group, and Gloo; in
turns, so that a drift of the machine meets all of them. What the machine takes for a message is measured
first, on networks that are not among those predicted (`bench.calibrated`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench import calibrated
from bench.alone import Key, plan_of, row_of, timed, tried
from bench.calibrated import Machine
from bench.punctual import Turns
from bench.run import Row
from tweed.collective import topology
from tweed.collective.planning import Candidate, predicted
from tweed.collective.topology import Topology, Wire
from tweed.errors import NoTestbed
from tweed.testbed import linked

PART = "all_reduce on links"
KB, MB = 1 << 10, 1 << 20
#: Baselines: they are measured wherever they have a schedule.
_ALWAYS = ("ring", "halving_doubling")
#: Others, if they are predicted to take at most `_NEAR` times as long as the quickest at some size. Each is
#: measured where that is at most `_HOPELESS` times.
_NEAR, _MOST, _HOPELESS = 2.0, 6, 4.0


_TURNS = Turns(2, 3)


@dataclass(frozen=True, slots=True)
class Scope:
    """One network, and what to measure in it.

    Attributes:
      sizes: of the buffer, in bytes.
      turns: calls of each side.
      seen: it was used while the prediction was made.
      only: names of builders; empty: those that are worth it.
    """

    topology: Topology
    sizes: tuple[int, ...]
    turns: Turns = _TURNS
    seen: bool = False
    only: tuple[str, ...] = ()


_SHORT = (KB, 8 * KB, 32 * KB)
_SITES = topology.sites([[4], [4]])


def _wire(mbit: float, late_ms: float) -> Wire:
    return Wire(round(mbit * 125_000), late_ms / 1e3)


FULL = (
    Scope(topology.ring(4, wire=_wire(20, 5)), (*_SHORT, 256 * KB), seen=True),
    Scope(topology.mesh(3, 3, wire=_wire(10, 2)), (*_SHORT, 256 * KB), seen=True),
    Scope(topology.torus(3, 3, wire=_wire(10, 3)), (*_SHORT, 256 * KB)),
    Scope(topology.hypercube(3, wire=_wire(10, 4)), (*_SHORT, 256 * KB)),
    Scope(topology.mesh(2, 4, wire=_wire(16, 2)), (*_SHORT, 256 * KB)),
    Scope(topology.star(6, _wire(20, 2)), (*_SHORT, 256 * KB)),
    Scope(_SITES, (KB, 16 * KB, 64 * KB, 256 * KB, 1 * MB, 4 * MB), turns=Turns(1, 5, 3)),
    Scope(_SITES, (25 * MB,), turns=Turns(1, 3), only=("ring", "hierarchy")),
)
QUICK = (Scope(topology.ring(4, wire=_wire(20, 2)), (KB, 64 * KB), turns=Turns(1, 2), seen=True),)


def measured(scopes: Sequence[Scope]) -> Iterator[Row]:
    """Rows of the machine and of every network; where none can be built, one row that says why."""
    try:
        machine = calibrated.measured()
        yield machine.row()
        for scope in scopes:
            yield from _on(scope, machine)
    except NoTestbed as error:
        yield {"part": "no testbed", "network": "links of a topology", "why": str(error)}


def _on(scope: Scope, machine: Machine) -> Iterator[Row]:
    times = {one: _times(one, scope, machine) for one in tried(scope.topology, scope.only)}
    chosen = _worth(times, scope)
    print(f"  {scope.topology.name}: {', '.join(map(str, chosen))}", file=sys.stderr, flush=True)
    plans = {str(one): plan_of(one, scope.topology).to_json() for one in chosen}
    foreseen = {(str(one), n): s for one in chosen for n, s in zip(scope.sizes, times[one], strict=True)}
    keys = [(side, n) for n in scope.sizes for side in (*plans, "gloo") if _hopeful(side, n, foreseen)]
    with linked(scope.topology) as bed:
        found = timed(bed, plans | {"gloo": ""}, keys, scope.turns)
        doubts = bed.doubts()
    marks = {"part": PART, "network": name(scope.topology), "ranks": scope.topology.ranks, "seen": scope.seen}
    for key, calls in found.items():
        side, numbytes = key
        yield (
            marks
            | {"bytes": numbytes, "side": side}
            | row_of(calls)
            | {
                "predicted_s": foreseen.get(key),
                "doubts": doubts,
            }
        )


def _times(one: Candidate, scope: Scope, machine: Machine) -> list[float]:
    network = machine.seen(scope.topology)
    return [predicted(one.schedule, numbytes, network, machine.host) for numbytes in scope.sizes]


def _worth(times: Mapping[Candidate, list[float]], scope: Scope) -> list[Candidate]:
    """The baselines, and those that come closest to the quickest at some size."""
    best = [min(column) for column in zip(*times.values(), strict=True)]
    near = {one: min(t / b for t, b in zip(row, best, strict=True)) for one, row in times.items()}
    always = [one for one in times if scope.only or one.builder in _ALWAYS]
    others = [one for one in times if one not in always and near[one] <= _NEAR]
    return always + sorted(others, key=lambda one: near[one])[: max(0, _MOST - len(always))]


def _hopeful(side: str, numbytes: int, foreseen: Mapping[Key, float]) -> bool:
    if side == "gloo" or side in _ALWAYS:
        return True
    best = min(seconds for (_, n), seconds in foreseen.items() if n == numbytes)
    return foreseen[side, numbytes] <= _HOPELESS * best


def name(network: Topology) -> str:
    """Such as "ring 4, 20 Mbit/s, 5 ms": with its slowest bandwidth and its longest latency."""
    rate = min(bandwidth for _, _, bandwidth, _, _ in network.links) * 8e-6
    late = max(latency_s for _, _, _, latency_s, _ in network.links) * 1e3
    return f"{network.name}, {rate:g} Mbit/s, {late:g} ms"
