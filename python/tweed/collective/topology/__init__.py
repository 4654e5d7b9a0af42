"""Networks as values: who has a link to whom, how fast, how late.

torus = topology.torus(8, 8)                       # ranks 0..63, directed links
topology.write(torus, "torus.json")                # the documented file, read by `tweed plan`
"""

from __future__ import annotations

from tweed._core import Topology
from tweed.collective.topology.base import GIGABIT, Wire
from tweed.collective.topology.grids import hypercube, line, mesh, ring, torus

__all__ = ["GIGABIT", "Topology", "Wire", "hypercube", "line", "mesh", "ring", "torus"]
