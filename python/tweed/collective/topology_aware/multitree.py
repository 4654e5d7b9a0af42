"""MultiTree: trees from every rank, grown together so that no link is used twice in a step.

Source: Huang et al., "Communication Algorithm-Architecture Co-Design for Distributed Deep Learning",
ISCA 2021, section III. The growth itself is Rust: crates/schedule/src/builders/multitree.
"""

from __future__ import annotations

from functools import partial

from tweed._core import Schedule, Topology
from tweed._core import multitree as _build
from tweed.collective.builder import Builder, over_links


def _make(collective: str, topology: Topology, pieces: int, *, split: bool) -> Schedule:
    return _build(collective, topology, pieces, split)


multitree = Builder("multitree", partial(_make, split=False), over_links)
multitree_split = Builder("multitree_split", partial(_make, split=True), over_links, pieces=(2, 8, 16))
