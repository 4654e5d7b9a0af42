"""Data sets for the training tasks, how to deal them out to ranks, and problems for experiments.

`get` finds a set and keeps it in the cache; `load` gives its arrays; `deal` splits the samples over ranks.
`problems` has sums of functions, one per rank; `streams` has samples that come one by one, and models of many
clients.
"""

from __future__ import annotations

from tweed.data.arrays import Arrays, Split
from tweed.data.partition import Partition, deal
from tweed.data.sets import SETS, get, load

__all__ = ["SETS", "Arrays", "Partition", "Split", "deal", "get", "load"]
