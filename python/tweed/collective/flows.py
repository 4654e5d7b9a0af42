"""Max-flows from all ranks to each: scipy's, over capacities between nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Capacities = dict[tuple[int, int], int]
"""What each directed link carries, by its nodes."""

LARGEST = 2**30 - 1
"""Scipy's flows are 32 bits wide and wrap in silence; what is left of a link and its opposite must fit."""


class Flows:
    """Max-flows to one rank after another from a source that supplies every rank.

    Args:
      links: capacities.
      supply: what the source gives each node; nodes that are left out get nothing.
      nodes: how many nodes there are; the source is one more.

    All supplies must add up to `LARGEST` at most.
    """

    def __init__(self, links: Mapping[tuple[int, int], int], supply: Mapping[int, int], nodes: int) -> None:
        import numpy as np
        from scipy.sparse import csr_array

        self.total = sum(supply.values())
        if self.total > LARGEST:
            raise OverflowError(f"a flow of {self.total} is more than scipy counts")
        edges = [*links, *((nodes, node) for node in supply)]
        values = np.array([min(value, self.total) for value in (*links.values(), *supply.values())])
        ends = np.array(edges, dtype=np.int32).T
        self._source = nodes
        self._graph = csr_array(
            (np.array(values, dtype=np.int32), (ends[0], ends[1])), shape=(nodes + 1,) * 2
        )

    def to(self, node: int) -> tuple[int, Any]:
        """The largest flow to `node`, and scipy's result."""
        from scipy.sparse.csgraph import maximum_flow

        result = maximum_flow(self._graph, self._source, node)
        return int(result.flow_value), result

    def inside(self, result: Any) -> frozenset[int]:
        """The source's side of the smallest cut, without the source."""
        from scipy.sparse.csgraph import breadth_first_order

        left = self._graph - result.flow
        left.eliminate_zeros()
        reached = breadth_first_order(left, self._source, return_predecessors=False)
        return frozenset(int(node) for node in reached if node != self._source)
