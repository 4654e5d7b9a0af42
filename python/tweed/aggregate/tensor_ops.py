"""Contributions as the rules take them: on the host, side by side, all of one dtype."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tweed.aggregate.base import Arrival, Value
from tweed.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor


#: Sums of more rows than this are formed together, which takes a copy of all.
_FEW = 3


class Row(NamedTuple):
    """One contribution.

    Attributes:
      fits: whether value and mask have the shape that most have.
    """

    sender: int
    value: Tensor
    missing: Tensor | None
    fits: bool


def rows_of(arrivals: Sequence[Arrival]) -> list[Row]:
    """The contributions of `arrivals`, in their order: float64 if one of them is that, else float32.

    Raises: UsageError if all are complex numbers; one among others fits as little as another shape.
    """
    import torch

    values = [torch.as_tensor(_writable(one.value)).cpu() for one in arrivals]
    odd = [value.is_complex() for value in values]
    if all(odd):
        raise UsageError("rules take real numbers: aggregate the parts of complex ones side by side")
    values = [value.real if complex_ else value for value, complex_ in zip(values, odd, strict=True)]
    dtype = torch.float64 if any(value.dtype == torch.float64 for value in values) else torch.float32
    masks = [None if one.missing is None else torch.as_tensor(one.missing).cpu().bool() for one in arrivals]
    shape, _ = Counter(value.shape for value in values).most_common(1)[0]
    return [
        Row(
            one.sender,
            _aligned(value.to(dtype)),
            None if mask is None else mask.contiguous(),
            not complex_ and value.shape == shape and (mask is None or mask.shape == shape),
        )
        for one, value, mask, complex_ in zip(arrivals, values, masks, odd, strict=True)
    ]


def _writable(value: Value) -> Value:
    """torch warns of a numpy array that it could write to and must not."""
    flags = getattr(value, "flags", None)
    return value if flags is None or flags.writeable else value.copy()


def _aligned(value: Tensor) -> Tensor:
    value = value.contiguous()
    return value if value.data_ptr() % value.element_size() == 0 else value.clone()


def combined(rows: Sequence[Row], weights: Sequence[float]) -> Tensor:
    """The rows' sum, each times its weight. What does not count is not read: it may be anything."""
    counts = [(row.value, weight) for row, weight in zip(rows, weights, strict=True) if weight]
    if not counts:
        return rows[0].value.new_zeros(rows[0].value.shape)
    out = counts[0][0] * counts[0][1]
    for value, weight in counts[1:]:
        out.add_(value, alpha=weight)
    return out


def weighted_sums(rows: Sequence[Row], shares: Tensor) -> Sequence[Tensor]:
    """As many sums of the rows as `shares`, `[m, n]`, has."""
    import torch

    if int((shares != 0).sum(dim=1).max()) <= _FEW:
        return [combined(rows, weights) for weights in shares.tolist()]
    values = torch.stack([row.value.flatten() for row in rows])
    return list((shares.to(values.dtype) @ values).view(len(shares), *rows[0].value.shape))


def as_given(update: Tensor | None, rows: Sequence[Row], arrivals: Sequence[Arrival]) -> Value:
    """`update`, or zeros, as contributions are: a tensor of their device, shape and dtype, or a numpy array;
    never of integers."""
    import torch

    like = next((at for at, row in enumerate(rows) if row.fits), 0)
    value = arrivals[like].value
    if update is None:
        update = rows[like].value.new_zeros(())
    if update.shape != value.shape:
        update = update.expand(tuple(value.shape)).clone()
    if not isinstance(value, torch.Tensor):
        return update.numpy()
    return update.to(value.device, value.dtype if value.is_floating_point() else update.dtype)
