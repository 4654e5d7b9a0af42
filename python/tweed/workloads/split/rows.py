"""Which rows of the clients' batches are aggregated, and what comes back to whom. Pure.

    clients' rows     0 .. m-1                          m .. b-1
    reduced           m rows, the weighted sum over     those of each client, one after the other
                      clients, slot by slot

A slot is a place in a batch; nothing relates the samples of a slot but their place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tweed.errors import UsageError


def slots(phi: float, rows: Sequence[int]) -> int:
    """How many slots are aggregated: `ceil(phi * b)`, of the smallest batch.

    Raises: UsageError for a share outside 0 to 1.

    Example:
      >>> slots(0.5, [7, 8])
      4
    """
    if not 0 <= phi <= 1:
        raise UsageError(f"phi={phi!r} is no share of a batch: give one from 0 to 1")
    return math.ceil(round(phi * min(rows), 9))


def reduced_rows(rows: Sequence[int], m: int) -> int:
    """Rows that are back-propagated and answered: `m + C (b - m)` where batches are equal."""
    return m + sum(rows) - m * len(rows)


def reduced(parts: Sequence[Tensor], weights: Sequence[float], m: int) -> Tensor:
    """The weighted sum of the first m rows, then all others: `[reduced_rows, ...]`.

    Args:
      parts: a client's rows each, `[b, ...]`.
      weights: of clients, with sum 1.
    """
    if m == 0:
        return torch.cat(list(parts))
    common = sum(weight * part[:m] for weight, part in zip(weights, parts, strict=True))
    assert isinstance(common, Tensor)  # there is a client
    return torch.cat([common, *(part[m:] for part in parts)])


def given_back(gradient: Tensor, rows: Sequence[int], m: int) -> tuple[Tensor, list[Tensor]]:
    """What of a `reduced` gradient is for all clients, `[m, ...]`, and what is each one's own."""
    common, *own = torch.split(gradient, [m, *(count - m for count in rows)])
    return common, list(own)
