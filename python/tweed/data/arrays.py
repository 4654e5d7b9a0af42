"""What a data set is once it is in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Contents of a set's files by name, as read from disk: `[bytes]` uint8.
Files = Mapping[str, NDArray[np.uint8]]


@dataclass(frozen=True, slots=True)
class Split:
    """Samples and targets of equal length.

    Attributes:
      x: `[n, ...]`, the samples, uint8.
      y: `[n]` classes, or `[n, length]` the next character for each character of `x`; uint8.

    Example:
      >>> len(load("digits").test)
      359
    """

    x: NDArray[np.uint8]
    y: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True, slots=True)
class Arrays:
    """A data set in memory. The arrays may be read-only views of the cached files.

    Attributes:
      train, test: disjoint sets of samples.
      labels: `[len(train)]`, what partitions go by: the class, or the work that a text comes from.
      classes: values of `y` are below this number.
      meta: further facts about the set, such as the alphabet of a text.

    Example:
      >>> load("digits").classes
      10
    """

    train: Split
    test: Split
    labels: NDArray[np.int64]
    classes: int
    meta: Mapping[str, Any] = field(default_factory=dict)
