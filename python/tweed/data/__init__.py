"""Data sets for the training tasks, and how to deal them out to ranks.

`get` finds a set and keeps it in the cache; `load` gives its arrays; `deal` splits the samples over ranks.
"""

from __future__ import annotations

from tweed.data.arrays import Arrays, Split
from tweed.data.partition import Partition, deal
from tweed.data.sets import SETS, get, load

__all__ = ["SETS", "Arrays", "Partition", "Split", "deal", "get", "load"]
