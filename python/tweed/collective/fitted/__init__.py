"""Builders that fit a schedule to a network: they know its links, and use no others.

    torus = topology.torus(8, 8)
    fitted.fit("all_reduce", "multitree", torus)     # a Schedule, checked against the links

A flat builder (`collective.builders`) knows only the number of ranks; `routed` puts one on a network. To add
a builder, add a file and its row to `table.py`.
"""

from __future__ import annotations

from tweed.collective.fitted.base import Fitted
from tweed.collective.fitted.table import find, fit, fitting, refusals, rows
from tweed.collective.fitted.trees import Edge, Tree

__all__ = ["Edge", "Fitted", "Tree", "find", "fit", "fitting", "refusals", "rows"]
