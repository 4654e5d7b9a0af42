"""A network from what was measured between every two ranks: who shares a host, a port, a way to other sites.

Pairs are measured one at a time, so a figure says nothing of what pairs share. This is guessed: ranks that
reach each other by shared memory are on one host; all that a host sends goes through one port, as fast as the
fastest of its pairs; hosts that are near each other are one site; and two sites share one way between them.
Figures that differ by a few per cent are taken as equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from statistics import median
from typing import Any

from tweed._core import Topology
from tweed.collective.topology.base import Fields
from tweed.errors import UsageError

_NEAR = 0.5
"""Of what their ports can do, so much must pass between two hosts of a site."""

_FAR, _LEAST_FAR_S = 3.0, 500e-6
"""Hosts are of different sites if it is so many times as far to the other as to the nearest, and so late."""

_ALIKE = 0.9
"""Figures of which the smallest is so much of the largest are taken as one: their median."""

Groups = Sequence[Sequence[int]]


def measured(matrix: Mapping[str, Any]) -> Topology:
    """The network behind a matrix of `tweed doctor`.

    Args:
      matrix: `members`, one per rank, and `links`, one per ordered pair, each with `src`, `dst`, `via`
        ("tcp" or "shm"), `bandwidth` in bytes per second of payload and `latency_s` one way.

    Raises: UsageError if a pair is missing, or all ranks share one host's memory.
    """
    ranks = len(matrix["members"])
    pairs = {(link["src"], link["dst"]): link for link in matrix["links"]}
    for pair in permutations(range(ranks), 2):
        if pair not in pairs:
            raise UsageError(f"nothing was measured from rank {pair[0]} to rank {pair[1]}: measure all pairs")
    if all(link["via"] == "shm" for link in pairs.values()):
        raise UsageError(
            "all ranks share one host's memory, and there is no network to plan for: tweed chooses by itself "
            "there; TWEED_TRANSPORT=tcp measures the host's loopback instead"
        )
    speeds = _evened([float(link["bandwidth"]) for link in pairs.values()])
    delays = _evened([float(link["latency_s"]) for link in pairs.values()])
    even = {
        pair: {**link, "bandwidth": speeds[link["bandwidth"]], "latency_s": delays[link["latency_s"]]}
        for pair, link in pairs.items()
    }
    return _Measured(ranks, even).topology()


@dataclass(frozen=True)
class _Measured:
    ranks: int
    pairs: Mapping[tuple[int, int], Mapping[str, Any]]

    def topology(self) -> Topology:
        hosts = _joined([[rank] for rank in range(self.ranks)], self._share_memory)
        ports = {id(host): self._port(host, hosts) for host in hosts}
        sites = _joined([[at] for at in range(len(hosts))], lambda a, b: self._near(hosts, ports, a[0], b[0]))
        node = self.ranks
        links: list[Fields] = []
        ends, tops = [], []
        for host in hosts:
            ends.append(host[0] if len(host) == 1 else node)
            links.extend(self._inside(host, node))
            node += len(host) > 1
        for site in sites:
            tops.append(ends[site[0]] if len(site) == 1 else node)
            links.extend(self._ups(site, hosts, ports, ends, node))
            node += len(site) > 1
        links.extend(self._between(sites, hosts, tops))
        return Topology(self.ranks, links, f"{self.ranks} ranks, measured", places=_places(sites, hosts))

    def _share_memory(self, a: Sequence[int], b: Sequence[int]) -> bool:
        return bool(self.pairs[a[0], b[0]]["via"] == "shm")

    def _best(self, src: Sequence[int], dst: Sequence[int]) -> tuple[int, float]:
        """The most bytes per second and the fewest seconds between ranks of two groups."""
        found = [self.pairs[pair] for pair in product(src, dst) if pair[0] != pair[1]]
        speed = max(1, round(max(link["bandwidth"] for link in found)))
        return speed, min(link["latency_s"] for link in found)

    def _port(self, host: Sequence[int], hosts: Groups) -> tuple[int, int, float]:
        """Bytes per second out of and into a host, and seconds to the nearest other."""
        others = [rank for other in hosts if other is not host for rank in other]
        (out, there), (into, back) = self._best(host, others), self._best(others, host)
        return out, into, min(there, back)

    def _near(self, hosts: Groups, ports: Mapping[int, tuple[int, int, float]], a: int, b: int) -> bool:
        one, other = ports[id(hosts[a])], ports[id(hosts[b])]
        (there, late), (back, later) = self._best(hosts[a], hosts[b]), self._best(hosts[b], hosts[a])
        wide = there >= _NEAR * min(one[0], other[1]) and back >= _NEAR * min(other[0], one[1])
        return wide and max(late, later) <= max(_FAR * max(one[2], other[2]), _LEAST_FAR_S)

    def _inside(self, host: Sequence[int], node: int) -> Iterator[Fields]:
        """Between a host's ranks and its memory, where it has several."""
        for rank in host if len(host) > 1 else ():
            others = [other for other in host if other != rank]
            for src, dst, (speed, late) in (
                (rank, node, self._best([rank], others)),
                (node, rank, self._best(others, [rank])),
            ):
                yield src, dst, speed, late / 2, 1

    def _ups(
        self,
        site: Sequence[int],
        hosts: Groups,
        ports: Mapping[int, tuple[int, int, float]],
        ends: Sequence[int],
        node: int,
    ) -> Iterator[Fields]:
        """Between the hosts of a site and its switch, where there are several."""
        for at in site if len(site) > 1 else ():
            out, into, late = ports[id(hosts[at])]
            yield ends[at], node, out, late / 2, 1
            yield node, ends[at], into, late / 2, 1

    def _between(self, sites: Groups, hosts: Groups, tops: Sequence[int]) -> Iterator[Fields]:
        within = [self._to_top(site, hosts) for site in sites]
        members = [[rank for at in site for rank in hosts[at]] for site in sites]
        for a, b in permutations(range(len(sites)), 2):
            speed, late = self._best(members[a], members[b])
            yield tops[a], tops[b], speed, max(0.0, late - within[a] - within[b]), 1

    def _to_top(self, site: Sequence[int], hosts: Groups) -> float:
        """Seconds from a host of a site to its switch."""
        if len(site) == 1:
            return 0.0
        return min(self._best(hosts[a], hosts[b])[1] for a, b in permutations(site, 2)) / 2


def _evened(figures: Sequence[float]) -> dict[float, float]:
    """What stands for each figure: builders must not take noise for an uneven network."""
    found: dict[float, float] = {}
    left = sorted(set(figures), reverse=True)
    while left:
        alike = [figure for figure in left if figure >= _ALIKE * left[0]]
        found |= dict.fromkeys(alike, median(figure for figure in figures if figure in alike))
        left = left[len(alike) :]
    return found


def _joined(groups: Groups, alike: Callable[[Sequence[int], Sequence[int]], bool]) -> list[list[int]]:
    """Groups of which each is alike to another are one, in the order of their first members."""
    found: list[list[Sequence[int]]] = []
    for group in groups:
        near = [one for one in found if any(alike(member, group) for member in one)]
        merged = [member for one in near for member in one] + [group]
        found = [one for one in found if one not in near] + [merged]
    return sorted(sorted(number for group in one for number in group) for one in found)


def _places(sites: Groups, hosts: Groups) -> list[list[int]]:
    """Site and host of each rank; and its number on the host, where any has several."""
    several = max(map(len, hosts)) > 1
    places = {
        rank: [place, nth, at] if several else [place, nth]
        for place, site in enumerate(sites)
        for nth, host in enumerate(site)
        for at, rank in enumerate(hosts[host])
    }
    return [places[rank] for rank in sorted(places)]
