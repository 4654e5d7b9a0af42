"""Networks as values: who has a link to whom, how fast, how late.

torus = topology.torus(8, 8)                       # ranks 0..63, directed links
topology.write(torus, "torus.json")                # the documented file, read by `tweed plan`
"""

from __future__ import annotations

from tweed._core import Topology
from tweed.collective.topology.base import GIGABIT, NVLINK, Cable, Wire
from tweed.collective.topology.check import check, survivors
from tweed.collective.topology.dgx import dgx1, dgx2
from tweed.collective.topology.grids import hypercube, line, mesh, ring, torus
from tweed.collective.topology.measured import measured
from tweed.collective.topology.random_regular import random_regular
from tweed.collective.topology.sites import sites
from tweed.collective.topology.switched import bigraph, dragonfly, fat_tree, star
from tweed.collective.topology.text import from_plain, plain, read, write

__all__ = [
    "GIGABIT",
    "NVLINK",
    "Cable",
    "Topology",
    "Wire",
    "bigraph",
    "check",
    "dgx1",
    "dgx2",
    "dragonfly",
    "fat_tree",
    "from_plain",
    "hypercube",
    "line",
    "measured",
    "mesh",
    "plain",
    "random_regular",
    "read",
    "ring",
    "sites",
    "star",
    "survivors",
    "torus",
    "write",
]
