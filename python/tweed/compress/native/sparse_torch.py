"""What `sparse` does, by torch's operators. Arguments have been checked."""

from __future__ import annotations

import torch
from torch import Tensor

_MAGNITUDE = 0x7FFFFFFF  # all bits of a float32 but its sign; as integers they are in the order of magnitudes


def top_k(x: Tensor, count: int, error: Tensor | None) -> tuple[Tensor, Tensor]:
    """The `count` values of largest magnitude, as `sparse.top_k` has them."""
    if count == 0:
        return _taken(x, torch.zeros_like(x, dtype=torch.bool), error)
    keys = _keys(x if error is None else x + error)
    least = _kth_key(keys, count)
    chosen = keys > least
    ties = (keys == least).nonzero().squeeze(1)
    chosen[ties[: count - int(chosen.sum())]] = True
    return _taken(x, chosen, error)


def largest_above(x: Tensor, tau: float, most: int, error: Tensor | None) -> tuple[Tensor, Tensor, int]:
    """At most `most` values of magnitude `tau` and more, as `sparse.largest_above` has them."""
    least = _keys(torch.tensor(tau, dtype=torch.float32, device=x.device))
    indices, values = _taken(x, _keys(x if error is None else x + error) >= least, error)
    found = len(values)
    if found > most:
        rest = torch.full_like(values, -0.0)  # which leaves a zero's sign as it is
        places, values = top_k(values, most, rest)
        if error is not None:
            error[indices] = rest
        indices = indices[places]
    return indices, values, found


def kth_magnitude(x: Tensor, count: int) -> float:
    """The least magnitude among the `count` largest, as `sparse.kth_magnitude` has it."""
    return float(_kth_key(_keys(x), count).view(torch.float32))


def nonzero(x: Tensor) -> tuple[Tensor, Tensor]:
    """Indices and values of all values that are not zero, as `sparse.nonzero` has them."""
    return _taken(x, _keys(x) > 0, None)


def scatter_add(out: Tensor, indices: Tensor, values: Tensor) -> None:
    """Adds `values[i]` to `out[indices[i]]`, as `sparse.scatter_add` does."""
    out.index_add_(0, indices, values)


def gather(x: Tensor, indices: Tensor) -> Tensor:
    """Returns `x[indices]`, as `sparse.gather` does."""
    return x.index_select(0, indices)


def all_finite(x: Tensor) -> bool:
    """Whether no value is infinite or NaN, as `sparse.all_finite` says it."""
    return bool(x.isfinite().all())


def _keys(x: Tensor) -> Tensor:
    return x.view(torch.int32) & _MAGNITUDE


def _kth_key(keys: Tensor, count: int) -> Tensor:
    return keys.kthvalue(keys.numel() - count + 1).values


def _taken(x: Tensor, chosen: Tensor, error: Tensor | None) -> tuple[Tensor, Tensor]:
    """The chosen values of `x + error`; the others stay in `error`."""
    if error is not None:
        x = error.add_(x)
    indices = chosen.nonzero().squeeze(1)
    values = x[indices]
    if error is not None:
        error[indices] = 0
    return indices.int(), values
