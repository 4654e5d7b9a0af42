"""Codes and delays that are measured and reported. Pure."""

from __future__ import annotations

#: Codes of which all subsets are decoded; the large one; workers of the small cluster.
CODES = ((8, 6), (12, 6), (12, 9))
LARGE, SMALL = (100, 69), 8
#: By workers, the rates of delays that are looked at, where `alpha` is a second.
MUS = {100: (0.5, 1.0, 2.0), 8: (0.5, 1.0)}
#: By rate, how many times as quick as uncoded 8 coded workers are in theory.
THEORY = {1.0: 1.26, 0.5: 1.45}
