"""The bottleneck cut of a network: what no all-gather can beat.

What the ranks inside a set of nodes hold must leave it, if a rank is outside. So an all-gather to which each
rank brings `m` bytes takes at least `m * ranks inside / bandwidth leaving`: the worst set gives the bound. Of
links out of switches only that counts which a switch that does not copy can make use of (`forwarding`).
Source: Zhao et al., "ForestColl: Throughput-Optimal Collective Communications on Heterogeneous Network
Fabrics", arXiv 2402.06787, theorem 1. For a reduce-scatter, cut `topology.reversed()`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd

from tweed._core import Topology
from tweed.collective.flows import LARGEST, Capacities, Flows
from tweed.collective.forwarding import GRAIN, copies_needed, forwarded
from tweed.collective.topology.check import spans
from tweed.errors import UsageError


@dataclass(frozen=True, slots=True)
class Cut:
    """A set of nodes, and what leaves it.

    Attributes:
      inside: the nodes, switches as well.
      ranks: how many of them are ranks; at least one rank is outside.
      links: those that lead out, by their nodes. `(switch, switch)` stands for what the switch takes through.
      bandwidth: bytes per second of all of them together, as far as switches can make use of it.
    """

    inside: frozenset[int]
    ranks: int
    links: tuple[tuple[int, int], ...]
    bandwidth: int | Fraction

    @property
    def rate(self) -> Fraction:
        """Bytes per second that each rank inside can send to all, if they share what leads out."""
        return Fraction(self.bandwidth) / self.ranks

    def seconds(self, numbytes: int, ranks: int) -> float:
        """The least time of an all-gather (or reduce-scatter) of `numbytes` in all over `ranks` ranks."""
        return float(Fraction(numbytes, ranks) / self.rate)


def bottleneck(topology: Topology) -> Cut:
    """The set of nodes with the most ranks inside per bandwidth leaving; of equals, the first found.

    It is exact where the bandwidths have a large common divisor, as those of products do; otherwise it is
    within a few parts in a billion times ranks. What switches can make use of is a float's approximation.

    Raises:
      UsageError: one rank; or nothing leads from some ranks to another.

    Cost: a max-flow to every rank, some three times over: 0.1 s at 64 ranks, 20 s at 1,024.
    Source: Dinkelbach, "On nonlinear fractional programming", 1967, over cuts found by max-flow.
    """
    links, nodes = capacities(topology)
    ranks = topology.ranks
    if ranks < 2:
        raise UsageError("one rank alone sends nothing: a network needs two ranks")
    found = _worst(links, nodes, ranks)
    if not copies_needed(links, ranks):
        return found
    cut = _worst(forwarded(links, ranks, nodes, found.rate), nodes, ranks)
    return replace(cut, bandwidth=Fraction(cut.bandwidth, GRAIN))


def smallest(topology: Topology, source: int) -> Cut:
    """The cut with the least bandwidth leaving it, among the sets with rank `source` in and some rank out.

    Of equals, the one that leaves out the lowest rank. As exact as `bottleneck`. Cost: a max-flow per rank.
    """
    links, nodes = capacities(topology)
    flows = _from(links, [source], nodes)
    found = [(*flows.to(rank), rank) for rank in range(topology.ranks) if rank != source]
    _, result, _ = min(found, key=lambda flow: (flow[0], flow[2]))
    return _cut(links, topology.ranks, flows.inside(result) | {source})


def between(topology: Topology, sources: Collection[int], sinks: Collection[int]) -> Cut:
    """The cut with the least bandwidth leaving it, among the sets that hold all `sources` and no `sinks`.

    As exact as `bottleneck`. Cost: a max-flow.
    """
    links, nodes = capacities(topology)
    ends = {(node, nodes): sum(links.values()) for node in sinks}
    flows = _from({**links, **ends}, sources, nodes + 1)
    _, result = flows.to(nodes)
    return _cut(links, topology.ranks, flows.inside(result) | frozenset(sources))


def across(topology: Topology, parts: Sequence[Collection[int]]) -> Cut:
    """The cut that limits how much all parts of a network together can send to other parts at a time.

    Of each node of a part, what it sends and what it receives are two nodes, so that what a part passes on
    counts as received, and sent again; links within a part are left out. `inside` has the first kind, and
    nodes of no part. Cost: a max-flow.

    Args:
      topology: the network.
      parts: disjoint sets of nodes; each rank is in one.
    """
    links, nodes = capacities(topology)
    part_of = {node: number for number, part in enumerate(parts) for node in part}
    limited = enumerate(sorted(topology.capacities), topology.nodes)
    part_of |= {second: part_of[switch] for second, switch in limited if switch in part_of}
    split = {
        (a, b + nodes if b in part_of else b): value
        for (a, b), value in links.items()
        if a not in part_of or part_of[a] != part_of.get(b)
    }
    ends = {(node + nodes, 2 * nodes): sum(links.values()) for node in part_of}
    flows = _from({**split, **ends}, part_of, 2 * nodes + 1)
    _, result = flows.to(2 * nodes)
    cut = _cut(split, topology.ranks, flows.inside(result) | part_of.keys())
    joined = tuple((a, b - nodes if b >= nodes else b) for a, b in cut.links)
    return Cut(frozenset(node for node in cut.inside if node < nodes), cut.ranks, joined, cut.bandwidth)


def _from(links: Capacities, sources: Collection[int], nodes: int) -> Flows:
    """Flows from `sources`, which give what their links take; all is rounded if it would be too large."""
    supply = {node: sum(value for (a, _), value in links.items() if a == node) for node in sources}
    scale = min(Fraction(1, gcd(*links.values())), Fraction(LARGEST, sum(supply.values()) or 1))
    whole = {link: int(value * scale) for link, value in links.items()}
    return Flows(whole, {node: int(value * scale) for node, value in supply.items()}, nodes)


def capacities(topology: Topology) -> tuple[Capacities, int]:
    """What each link carries in bytes per second, and the number of nodes.

    A switch with a capacity of its own becomes two nodes, the second one new, with a link of that capacity in
    between. Of a complete network, the core becomes a switch, and a rank's port a link in each direction.
    """
    if topology.is_complete:
        port = topology.links[0][2] if topology.ranks > 1 else 0
        core = topology.ranks
        ends = range(topology.ranks)
        return {**{(rank, core): port for rank in ends}, **{(core, rank): port for rank in ends}}, core + 1
    nodes = topology.nodes
    second = {switch: nodes + place for place, switch in enumerate(sorted(topology.capacities))}
    links = {(second.get(a, a), b): bandwidth * count for a, b, bandwidth, _, count in topology.links}
    through = {(switch, out): topology.capacities[switch] for switch, out in second.items()}
    return {**links, **through}, nodes + len(second)


def _worst(links: Capacities, nodes: int, ranks: int) -> Cut:
    """Dinkelbach's iteration: the flows of the best rate so far fit, or show a cut that allows less."""
    everybody = frozenset(range(nodes))
    all_but_one = (_cut(links, ranks, everybody - {rank}) for rank in range(ranks))
    better: Cut | None = min(all_but_one, key=lambda cut: cut.rate)
    while better is not None:
        best = better
        if best.bandwidth == 0:
            inside = spans(node for node in best.inside if node < ranks)
            plural = "s" * (best.ranks > 1)
            raise UsageError(
                f"nothing leads from rank{plural} {inside} to the others: add the links that are missing"
            )
        better = _better(links, nodes, ranks, best)
    return best


def _better(links: Capacities, nodes: int, ranks: int, best: Cut) -> Cut | None:
    """A set that allows each rank inside less than `best` does, if there is one."""
    flows = _scaled(links, nodes, ranks, best.rate)
    for rank in range(ranks):
        value, result = flows.to(rank)
        if value < flows.total:
            cut = _cut(links, ranks, flows.inside(result))
            if cut.rate < best.rate:
                return cut
    return None


def _scaled(links: Capacities, nodes: int, ranks: int, rate: Fraction) -> Flows:
    """Every rank supplies `rate`; all is a whole number, and rounded if it would be too large."""
    unit = gcd(rate.numerator, *(value * rate.denominator for value in links.values()))
    most = LARGEST // ranks
    scale = min(Fraction(rate.denominator, unit), most / rate)
    whole = {link: int(value * scale) for link, value in links.items()}
    return Flows(whole, dict.fromkeys(range(ranks), int(rate * scale)), nodes)


def _cut(links: Capacities, ranks: int, inside: frozenset[int]) -> Cut:
    out = tuple((a, b) for a, b in sorted(links) if a in inside and b not in inside)
    within = sum(node < ranks for node in inside)
    return Cut(inside, within, out, sum(links[link] for link in out))
