"""Is a network one that collectives can run on? If not: what to change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from math import prod

from tweed._core import Topology
from tweed.collective.topology.base import neighbours, port
from tweed.errors import UsageError

Neighbours = Mapping[int, set[int]]


@lru_cache(maxsize=256)
def check(topology: Topology) -> None:
    """Looks at numbers, then at every node and link, then whether every rank reaches every other.

    Raises: UsageError with the first thing that is wrong and what to change.
    Cost: a pass over the links; each network is looked at once in a process.
    """
    if wrong := next(_wrong(topology), ""):
        raise UsageError(f"{topology.name or 'the network'}: {wrong}")


def survivors(
    topology: Topology, ranks: Iterable[int] = (), links: Iterable[tuple[int, int]] = ()
) -> Topology:
    """What is left when ranks and directed links are gone, without the switches that lost their last host.

    The other nodes keep their order and close up.

    Raises: UsageError if it was no network, or what is left is none; see `check`.
    """
    check(topology)
    left = topology.without(set(ranks), set(links))
    if not left.is_complete:
        left = left.without(_idle(left), set())
    check(left)
    return left


def _wrong(topology: Topology) -> Iterator[str]:
    if topology.ranks < 2:
        yield f"it has {topology.ranks} rank, with nobody to send to: give two ranks or more"
    yield from _traits(topology)
    if topology.is_complete:
        if port(topology).bandwidth == 0:
            yield "its bandwidth is 0: give bytes per second, 1 or more"
        return
    yield from _links(topology)
    yield from _nodes(topology)
    yield from _ways(topology)


def _traits(topology: Topology) -> Iterator[str]:
    ranks, sides, wraps, places = topology.ranks, topology.sides, topology.wraps, topology.places
    for node, capacity in topology.capacities.items():
        if not ranks <= node < topology.nodes:
            yield f"it gives a capacity to node {node}: only switches have one, from {ranks} on"
        if capacity == 0:
            yield f"switch {node} has capacity 0: give bytes per second, or leave it out"
    if sides and prod(sides) != ranks:
        yield f"its sides are {sides}: give sides whose product is {ranks}, the number of ranks"
    if len(wraps) != len(sides):
        yield f"its sides are {sides} and its wraps {wraps}: give one wrap for each side"
    if len(places) not in (0, ranks):
        yield f"it has places for {len(places)} ranks: give one for each of {ranks}, or none"
    if len({len(place) for place in places}) > 1:
        yield "its places are not equally deep: give as many numbers for each rank: site, rack, host"


def _links(topology: Topology) -> Iterator[str]:
    for src, dst, bandwidth, _, count in topology.links:
        if src == dst:
            yield f"link {src} -> {dst} leads to where it comes from: leave it out"
        if bandwidth == 0 or count == 0:
            what = "bandwidth" if bandwidth == 0 else "count"
            yield f"link {src} -> {dst} has {what} 0: give 1 or more, or leave the link out"


def _nodes(topology: Topology) -> Iterator[str]:
    linked = neighbours(topology)
    if alone := {rank for rank in range(topology.ranks) if rank not in linked}:
        has, these = ("has", "this rank") if len(alone) == 1 else ("have", "these ranks")
        yield f"{nodes(topology, alone)} {has} no link: link {these} with others, or leave out {these}"
    gap = next((node for node in range(topology.ranks, topology.nodes) if node not in linked), None)
    if gap is not None:
        yield f"switch {gap} has no link: number switches from {topology.ranks} on, without gaps"
    if idle := _idle(topology):
        has, these = ("has", "this switch") if len(idle) == 1 else ("have", "these switches")
        yield f"{nodes(topology, idle)} {has} no host behind: put hosts there, or leave out {these}"


def _ways(topology: Topology) -> Iterator[str]:
    """Every rank reaches rank 0 and is reached from there, and so they all reach each other."""
    ranks = set(range(topology.ranks))
    links = {(src, dst) for src, dst, *_ in topology.links}
    reached = _reached(links)
    if not ranks <= reached:
        back = [(src, dst) for src, dst in links if dst in reached and src not in reached]
        yield _no_way(topology, ranks & reached, ranks - reached, back)
    reaching = _reached({(dst, src) for src, dst in links})
    if not ranks <= reaching:
        back = [(src, dst) for src, dst in links if src in reaching and dst not in reaching]
        yield _no_way(topology, ranks - reaching, ranks & reaching, back)


def _no_way(topology: Topology, here: set[int], there: set[int], one_way: list[tuple[int, int]]) -> str:
    """No way leads from `here` to `there`; `one_way` are links that lead back."""
    if not one_way:
        return (
            f"it is in pieces, as nothing links {nodes(topology, here)} with {nodes(topology, there)}: "
            "add links between them"
        )
    src, dst = min(one_way)
    return (
        f"no way leads from {nodes(topology, here)} to {nodes(topology, there)}, as link {src} -> {dst} has "
        f"none back: add {dst} -> {src}"
    )


def _reached(links: set[tuple[int, int]]) -> set[int]:
    """The nodes that rank 0 reaches."""
    out = defaultdict(set)
    for src, dst in links:
        out[src].add(dst)
    found, front = {0}, {0}
    while front := {after for node in front for after in out[node]} - found:
        found |= front
    return found


def _idle(topology: Topology) -> set[int]:
    """Switches without links, and those from which only one neighbour leads on, again and again."""
    linked = dict(neighbours(topology))
    idle = {node for node in range(topology.ranks, topology.nodes) if node not in linked}
    while ends := {node for node in linked if node >= topology.ranks and len(linked[node]) < 2}:
        idle |= ends
        for node in ends:
            for neighbour in linked.pop(node):
                linked.get(neighbour, set()).discard(node)
    return idle


def spans(numbers: Iterable[int]) -> str:
    """Such as "0-3, 7"."""
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in _runs(sorted(set(numbers))))


def nodes(topology: Topology, which: Iterable[int]) -> str:
    """Such as "ranks 0-3 and switch 8"."""
    which = set(which)
    parts = [
        ("rank", {node for node in which if node < topology.ranks}),
        ("switch", {node for node in which if node >= topology.ranks}),
    ]
    named = [f"{kind}{_plural(kind, found)} {spans(found)}" for kind, found in parts if found]
    return " and ".join(named) or "nobody"


def _plural(kind: str, found: set[int]) -> str:
    if len(found) == 1:
        return ""
    return "es" if kind == "switch" else "s"


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """The first and the last of every run of neighbours."""
    starts = [at for at, number in enumerate(numbers) if at == 0 or numbers[at - 1] != number - 1]
    for start, end in zip(starts, [*starts[1:], len(numbers)], strict=True):
        yield numbers[start], numbers[end - 1]
