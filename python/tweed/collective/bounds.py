"""What no schedule on a network can beat, and what keeps it from doing so.

    found = bounds.of("all_reduce", topology.mesh(4, 4))
    found.seconds(1 << 26)                  # the least time for 64 MiB
    found.limit(1 << 26).why                # "30 times the buffer over all links out of ranks"

A bound holds for every schedule in which ranks send contributions or sums of them over the links, however it
is pipelined, and switches neither copy nor add. What a rank reads from its own host's memory is outside of
it. `numbytes` is the whole buffer, all ranks' shares together, which are alike; a byte or more for each rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import permutations
from typing import Any

from tweed._core import Topology
from tweed.collective.cuts import Cut, across, between, bottleneck, smallest
from tweed.collective.partitions import Parts, partitions
from tweed.collective.table import COLLECTIVES
from tweed.collective.topology.base import port
from tweed.collective.topology.check import check, nodes
from tweed.errors import UsageError

_NAMED = 4  # so many parts are named


@dataclass(frozen=True, slots=True)
class Bound:
    """One reason why it takes so long.

    Attributes:
      name: `cut`, `links` or `latency`.
      per_byte: seconds for each byte of the buffer.
      fixed_s: seconds besides.
      why: what limits, in words.
    """

    name: str
    per_byte: Fraction
    fixed_s: float
    why: str

    def seconds(self, numbytes: int) -> float:
        """The least time for a buffer of `numbytes`."""
        return self.fixed_s + float(self.per_byte * numbytes)


@dataclass(frozen=True, slots=True)
class Bounds:
    """All that is proven of a collective on a network.

    Attributes:
      collective: which.
      cut: what must leave some set of nodes, over the links that lead out.
      links: all that must be sent between ranks, or between sites or other parts, over the links between.
      latency: the longest path that some value must take.
      steps: how many steps it takes at least if a link carries one rank's share in each; for all_reduce, of
        schedules that reduce-scatter and then all-gather.
      phased: of all_reduce, what those schedules cannot beat: the cuts of both, one after the other. It is no
        bound for others: trees that sum and spread at the same time can be ahead of it.
    """

    collective: str
    cut: Bound
    links: Bound
    latency: Bound
    steps: int
    phased: Bound | None = None

    def limit(self, numbytes: int) -> Bound:
        """The bound that is tightest for a buffer of `numbytes`."""
        return max((self.cut, self.links, self.latency), key=lambda bound: bound.seconds(numbytes))

    def seconds(self, numbytes: int) -> float:
        """No schedule takes less for a buffer of `numbytes`."""
        return self.limit(numbytes).seconds(numbytes)

    def reached(self, seconds: float, numbytes: int) -> float:
        """The share of the possible speed that a schedule has which takes `seconds`: 1 is the best."""
        return self.seconds(numbytes) / seconds


@lru_cache(maxsize=64)
def of(collective: str, topology: Topology, root: int = 0) -> Bounds:
    """The bounds of a collective on a network.

    Args:
      collective: one of `table.COLLECTIVES`.
      topology: any network that `topology.check` takes.
      root: of those collectives that have one.

    Raises: UsageError if there is no such collective, or `check` refuses the network.

    Cost: at most some max-flows per rank: 0.2 s at 64 ranks (see `cuts`). Kept for the next call.
    Sources: cuts of all_gather and reduce_scatter: Zhao et al., arXiv 2402.06787, theorem 1; the number of
      sends of all_reduce: Harary and Schwenk, "The communication problem on graphs and digraphs", 1974; that
      it holds between parts as between ranks is our own (see `_links`).
    """
    if collective not in COLLECTIVES:
        raise UsageError(f"there is no collective {collective!r}; use one of {', '.join(COLLECTIVES)}")
    check(topology)
    asked = _Asked(collective, topology, root)
    phased = [_cut(_Asked(phase, topology)) for phase in ("reduce_scatter", "all_gather")]
    both = _both(phased) if collective == "all_reduce" else None
    return Bounds(collective, _cut(asked), _links(asked), _latency(asked), _steps(asked), both)


@dataclass(frozen=True, slots=True)
class _Asked:
    collective: str
    topology: Topology
    root: int = 0

    @property
    def ranks(self) -> int:
        return self.topology.ranks


def _both(phases: Sequence[Bound]) -> Bound:
    why = "; then ".join(phase.why for phase in phases)
    return Bound("cut", sum((phase.per_byte for phase in phases), Fraction()), 0.0, why)


# --- What must leave a set of nodes.


def _share(asked: _Asked, inside: frozenset[int]) -> Fraction:
    """The part of the buffer that must leave the ranks `inside`."""
    ranks, within = asked.ranks, len(inside)
    without = ranks - within
    if not within or not without:
        return Fraction(0)
    from_root, to_root = asked.root in inside, asked.root not in inside
    parts = {
        "all_reduce": Fraction(1),
        "all_gather": Fraction(within, ranks),
        "reduce_scatter": Fraction(without, ranks),
        "broadcast": Fraction(from_root),
        "reduce": Fraction(to_root),
        "scatter": Fraction(without * from_root, ranks),
        "gather": Fraction(within * to_root, ranks),
        "all_to_all": Fraction(within * without, ranks**2),
    }
    return parts[asked.collective]


def _cut(asked: _Asked) -> Bound:
    return max(_cuts(asked), key=lambda bound: bound.per_byte)


def _cuts(asked: _Asked) -> Iterator[Bound]:
    """Every set of nodes gives a bound. These are the best; for gather, scatter, all_to_all good ones."""
    topology, back = asked.topology, asked.topology.reversed()
    if asked.collective == "all_gather":
        yield _out_of(asked, bottleneck(topology))
    elif asked.collective == "reduce_scatter":
        yield _into(asked, bottleneck(back))
    elif asked.collective == "broadcast":
        yield _out_of(asked, smallest(topology, asked.root))
    elif asked.collective == "reduce":
        yield _into(asked, smallest(back, asked.root))
    elif asked.collective == "all_reduce":
        yield _out_of(asked, smallest(topology, 0))
        yield _into(asked, smallest(back, 0))
    else:
        for group in _groups(topology):
            others = frozenset(range(topology.ranks)) - group
            yield _out_of(asked, between(topology, group, others))
            yield _into(asked, between(back, group, others))


def _groups(topology: Topology) -> Iterator[frozenset[int]]:
    """Each rank alone, and the ranks of each site, rack and host."""
    yield from (frozenset([rank]) for rank in range(topology.ranks))
    for depth in range(1, len(topology.places[0]) + 1 if topology.places else 0):
        where = [tuple(place[:depth]) for place in topology.places]
        groups = {here: frozenset(rank for rank, at in enumerate(where) if at == here) for here in where}
        yield from (group for group in groups.values() if 1 < len(group) < topology.ranks)


def _out_of(asked: _Asked, cut: Cut) -> Bound:
    inside = frozenset(node for node in cut.inside if node < asked.ranks)
    return _bound(asked, cut, inside, _carriers(asked.topology, cut))


def _into(asked: _Asked, cut: Cut) -> Bound:
    """The bound of a cut of the network with every link turned round."""
    outside = frozenset(range(asked.ranks)) - cut.inside
    return _bound(asked, cut, outside, _carriers(asked.topology.reversed(), cut))


def _bound(asked: _Asked, cut: Cut, src: frozenset[int], carriers: str) -> Bound:
    dst = frozenset(range(asked.ranks)) - src
    way, fewer = ("out of", src) if len(src) <= len(dst) else ("into", dst)
    where = f"{way} {nodes(asked.topology, fewer)}"
    share = _share(asked, src)
    part = "the buffer" if share == 1 else f"{share} of the buffer"
    return Bound("cut", share / cut.bandwidth, 0.0, f"{part} over {carriers} {where}")


def _carriers(topology: Topology, cut: Cut) -> str:
    """The links and switches that a cut goes through."""
    if topology.is_complete:
        return "the port" if len(cut.links) == 1 else f"the {len(cut.links)} ports"
    limited = sorted(topology.capacities)
    counts = {(src, dst): count for src, dst, _, _, count in topology.links}
    ends = [(limited[a - topology.nodes] if a >= topology.nodes else a, b) for a, b in cut.links]
    through = [a for a, b in ends if b >= topology.nodes]
    links = sum(counts[end] for end in ends if end in counts)
    parts = [f"the {links} links" if links > 1 else "the link"] if links else []
    return " and ".join([*parts, *([f"what {nodes(topology, through)} can take"] if through else [])])


# --- All that must be sent.


def _links(asked: _Asked) -> Bound:
    """What must cross between parts of the network, over all links between them; the best division counts.

    Divide the network into k parts with ranks in each. Look at one byte when the first part knows it of all:
    something from each of the other k - 1 has arrived outside of it, and each of them lacks something that
    has yet to arrive there, as a message reaches one part. So an all_reduce sends every byte 2 (k - 1) times
    from part to part, as between k ranks. In the other collectives every part but one must send each byte, or
    every part but one receive it: k - 1 times. What is never summed or copied takes a shortest path.
    """
    if asked.collective in ("gather", "scatter", "all_to_all"):
        return _passed_on(asked)
    found = (_crossing(asked, parts) for parts in partitions(asked.topology))
    return max(found, key=lambda one: one.per_byte)


def _crossing(asked: _Asked, parts: Parts) -> Bound:
    times = (2 if asked.collective == "all_reduce" else 1) * (len(parts) - 1)
    cut = across(asked.topology, parts)
    why = f"{times} times the buffer over {_between(asked.topology, parts, cut)}"
    return Bound("links", Fraction(times, cut.bandwidth), 0.0, why)


def _between(topology: Topology, parts: Parts, cut: Cut) -> str:
    """The links of the cut between these parts, in words."""
    if len(parts) == topology.ranks:
        out, into = (sum(end) for end in _ends(topology))
        if cut.bandwidth == min(out, into):
            return "all links into ranks" if into < out else "all links out of ranks"
        return _carriers(topology, cut)
    carriers = _carriers(topology, cut)
    if len(parts) > _NAMED:
        return f"{carriers} between {len(parts)} groups of ranks"
    ours = [nodes(topology, (node for node in part if node < topology.ranks)) for part in parts]
    return f"{carriers} between {', '.join(ours[:-1])} and {ours[-1]}"


def _passed_on(asked: _Asked) -> Bound:
    """Parts that are never summed or copied: each takes its own path."""
    ranks, topology = asked.ranks, asked.topology
    pairs = list(_pairs(asked))
    part = Fraction(1, ranks**2 if asked.collective == "all_to_all" else ranks)
    if topology.is_complete:
        hops, bandwidth = len(pairs), sum(_ends(topology)[0])
    else:
        far = _distances(topology, hops=True)
        hops = sum(int(far[pair]) for pair in pairs)
        bandwidth = sum(bandwidth * count for _, _, bandwidth, _, count in topology.links)
    why = f"{float(part * hops):.3g} times the buffer over all links, each part by the fewest"
    return Bound("links", part * hops / bandwidth, 0.0, why)


def _pairs(asked: _Asked) -> Iterator[tuple[int, int]]:
    """The ranks (src, dst) of which something of the first must come to the second."""
    only_src = asked.root if asked.collective in ("broadcast", "scatter") else None
    only_dst = asked.root if asked.collective in ("reduce", "gather") else None
    for src, dst in permutations(range(asked.ranks), 2):
        if only_src in (None, src) and only_dst in (None, dst):
            yield src, dst


def _ends(topology: Topology, each: int | None = None) -> tuple[list[int], list[int]]:
    """Bytes per second out of each rank, and into each; or with 1 for `each` link, links. A port is one."""
    if topology.is_complete:
        through = [port(topology).bandwidth if each is None else each] * topology.ranks
        return through, through
    out, into = [0] * topology.nodes, [0] * topology.nodes
    for src, dst, bandwidth, _, count in topology.links:
        out[src] += (bandwidth if each is None else each) * count
        into[dst] += (bandwidth if each is None else each) * count
    return out[: topology.ranks], into[: topology.ranks]


# --- The longest path, and steps.


def _latency(asked: _Asked) -> Bound:
    topology = asked.topology
    if topology.is_complete:
        return Bound("latency", Fraction(0), port(topology).latency_s, "the way from a rank to another")
    apart = _distances(topology)
    far, src, dst = max(((float(apart[pair]), *pair) for pair in _pairs(asked)), key=lambda path: path[0])
    return Bound("latency", Fraction(0), far, f"the way from rank {src} to rank {dst}")


def _distances(topology: Topology, hops: bool = False) -> Any:
    """`[nodes, nodes]`: seconds, or links, by a shortest path."""
    import numpy as np
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    src, dst, _, latency_s, _ = zip(*topology.links, strict=True)
    graph = csr_array((np.array(latency_s), (src, dst)), shape=(topology.nodes,) * 2)
    return dijkstra(graph, unweighted=hops)


def _steps(asked: _Asked) -> int:
    """Each rank takes in (or gives) as many shares in a step as it has links."""
    if asked.collective in ("broadcast", "reduce"):
        return 1
    out, into = _ends(asked.topology, each=1)
    others = asked.ranks - 1
    gathered, scattered = -(-others // min(into)), -(-others // min(out))
    return {
        "all_reduce": scattered + gathered,
        "reduce_scatter": scattered,
        "gather": -(-others // into[asked.root]),
        "scatter": -(-others // out[asked.root]),
    }.get(asked.collective, gathered)
