"""Halving-doubling with rank mapping, for BiGraph networks.

Ranks are mapped so that partners always sit in different layers, and those of the hosts of one switch behind
different switches: then no two messages of a step share a link. As fast as a ring for long messages, in
`2 log2 N` steps instead of `2 (N - 1)`.

Source: Dong et al., "EFLOPS: Algorithm and System Co-Design for a High Performance Distributed Training
Platform", HPCA 2020. How the mapping is found, by the bits of a rank, is our own design.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import NamedTuple

from tweed._core import Schedule, Topology
from tweed.collective.builder import Builder, routed
from tweed.collective.halving_doubling import halving_doubling


class _Layers(NamedTuple):
    """The hosts behind each switch, of the layer with the lowest rank and of the other."""

    near: list[list[int]]
    far: list[list[int]]


def order(topology: Topology) -> tuple[int, ...]:
    """Which rank takes the place of each rank of a halving-doubling.

    Of a place's bits, the parity is the layer: partners differ in one bit. The lowest bits (but one) are the
    switch in the one layer, the highest in the other, so those who share a switch share no partner's switch.
    """
    layers = _layers(topology)
    return tuple(_host(layers, place) for place in range(topology.ranks)) if layers else ()


def _host(layers: _Layers, place: int) -> int:
    code, switches, hosts = place >> 1, len(layers.near), len(layers.near[0])
    if place.bit_count() % 2 == 0:
        return layers.near[code % switches][code // switches]
    return layers.far[code // hosts][code % hosts]


@lru_cache(maxsize=64)
def _layers(topology: Topology) -> _Layers | None:
    """The two layers of a BiGraph; None if the network is none."""
    links = {(a, b) for a, b, *_ in topology.links}
    ranks, switches = range(topology.ranks), range(topology.ranks, topology.nodes)
    behind = {switch: [rank for rank in ranks if (rank, switch) in links] for switch in switches}
    if not switches or len({len(hosts) for hosts in behind.values()}) > 1:
        return None
    first = min(switches, key=lambda switch: behind[switch])
    far = [switch for switch in switches if (first, switch) in links]
    near = [switch for switch in switches if switch not in far]
    pairs = {(rank, switch) for switch in switches for rank in behind[switch]} | set(product(near, far))
    once = sum(map(len, behind.values())) == topology.ranks
    if len(near) != len(far) or not once or links != pairs | {(b, a) for a, b in pairs}:
        return None
    return _Layers([behind[switch] for switch in near], [behind[switch] for switch in far])


def _make(collective: str, topology: Topology, pieces: int) -> Schedule:
    return routed(halving_doubling.patterns[collective], topology, order, "hdrm")


def _refuses(topology: Topology) -> str:
    if topology.is_complete or _layers(topology) is None:
        return (
            "it needs a BiGraph: two equal layers of switches, each linked with every switch of the other "
            "layer and with equally many ranks"
        )
    if topology.ranks & (topology.ranks - 1):
        return f"it halves the ranks down to pairs, and {topology.ranks} is no power of two"
    return ""


hdrm = Builder("hdrm", _make, _refuses)
