"""The norm of a value, and whether that fits what was said of it.

Arrays of numpy and tensors of torch alike, as the machines know neither.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

#: What is said, and what is added up, is rounded.
_ROUNDING = 1e-3


def norm(value: Any) -> float:
    """The norm of a vector; infinite or not a number if the value is not finite. Cost: three passes."""
    largest = float(abs(value).max()) if math.prod(value.shape) else 0.0
    if not 0 < largest < math.inf:
        return largest
    scaled = value / largest  # whose squares are finite
    return largest * math.sqrt(float((scaled * scaled).sum()))


def fits(value: Any, said: float) -> bool:
    """Whether a contribution has no larger norm than its member has said; not a number: it said nothing."""
    return math.isnan(said) or norm(value) <= said * (1 + _ROUNDING)


def may_be_sum(value: Any, said: Iterable[float]) -> bool:
    """Whether `value` can be the sum of contributions that fit what was said of them."""
    most = sum(said)
    return math.isnan(most) or norm(value) <= most * (1 + 2 * _ROUNDING)
