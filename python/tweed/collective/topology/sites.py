"""Sites with racks with hosts: fast inside, slow and uneven between."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations

from tweed._core import Topology
from tweed.collective.topology.base import GIGABIT, Cable, Fields, Wire, both_ways
from tweed.errors import UsageError

UPLINK = Wire(1_250_000_000, 50e-6)
"""10 Gbit/s from a rack to the rest of its site."""

WIDE = Wire(12_500_000, 20e-3)
"""100 Mbit/s between two sites, 20 ms one way."""


def sites(
    racks: Sequence[Sequence[int]],
    host: Cable = GIGABIT,
    uplink: Cable = UPLINK,
    wide: Wire | Mapping[tuple[int, int], Wire] = WIDE,
) -> Topology:
    """Each rack has a switch, a site of several racks has one above them, and sites are linked pair by pair.

        sites([[4], [4]])                               # two sites of four hosts
        sites([[8, 8], [3]], wide={(0, 1): fast, (1, 0): slow})

    Ranks are numbered site by site, rack by rack, and know their places.

    Args:
      racks: for each site, how many hosts each of its racks has.
      host: from a host up to its rack's switch, and down.
      uplink: from a rack's switch up to the site's, and down.
      wide: between sites, alike for all, or by (from, to); pairs that are left out are not linked.

    Raises: UsageError if a site or a rack is empty, or `wide` names a site that is not there.
    """
    if not racks or any(not site or min(site) < 1 for site in racks):
        given = [list(site) for site in racks]
        raise UsageError(f"racks are {given}; give each site a rack or more, and each rack a host or more")
    ranks = sum(map(sum, racks))
    places = [
        (site, rack, host)
        for site, sizes in enumerate(racks)
        for rack, size in enumerate(sizes)
        for host in range(size)
    ]
    links, tops = _inside(racks, ranks, host, uplink)
    links.extend(_between(tops, wide))
    return Topology(ranks, links, f"sites {_shape(racks)}", places=places)


def _inside(
    racks: Sequence[Sequence[int]], ranks: int, host: Cable, uplink: Cable
) -> tuple[list[Fields], list[int]]:
    """The links within sites, and the switch of each site that leads out of it."""
    links: list[Fields] = []
    tops: list[int] = []
    rank, switch = 0, ranks
    for sizes in racks:
        first = switch
        for size in sizes:
            links.extend(both_ways(((rank + nth, switch) for nth in range(size)), host))
            rank, switch = rank + size, switch + 1
        if len(sizes) > 1:
            links.extend(both_ways(((rack, switch) for rack in range(first, switch)), uplink))
            switch += 1
        tops.append(switch - 1)
    return links, tops


def _between(tops: Sequence[int], wide: Wire | Mapping[tuple[int, int], Wire]) -> Iterator[Fields]:
    if isinstance(wide, Wire):
        wide = dict.fromkeys(permutations(range(len(tops)), 2), wide)
    for (src, dst), wire in wide.items():
        if src == dst or not {src, dst} <= set(range(len(tops))):
            raise UsageError(f"wide has a link from site {src} to site {dst}; sites are 0 to {len(tops) - 1}")
        yield tops[src], tops[dst], wire.bandwidth, wire.latency_s, wire.count


def _shape(racks: Sequence[Sequence[int]]) -> str:
    return " ".join("+".join(str(size) for size in site) for site in racks)
