"""The average model of all ranks for a while, to be evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from tweed.attach.bucket import assign, item
from tweed.attach.wire import Wire
from tweed.errors import UsageError


@torch.no_grad()
def means(tensors: Sequence[Tensor], wire: Wire) -> list[Tensor]:
    """The averages over all ranks of `tensors`.

    Raises: UsageError where sums may lose parts.
    Cost: an all-reduce of all of them.
    """
    if wire.losses is not None:
        raise UsageError(
            "the strategy's transport may lose parts of a sum, and a model must not lose parameters: there "
            "is no average model. Lose nothing: Ltp(lossless=True)"
        )
    result: dict[int, Tensor] = {}
    for members in assign([item(tensor) for tensor in tensors], limit_bytes=25 * 2**20):
        group = [tensors[index].detach() for index in members]
        flat = torch.cat([tensor.flatten() for tensor in group])
        wire.wait(wire.sum(flat))
        pieces = torch.split(flat.mul_(wire.factor), [tensor.numel() for tensor in group])
        for index, tensor, piece in zip(members, group, pieces, strict=True):
            result[index] = piece.view(tensor.shape)
    return [result[index] for index in range(len(tensors))]


@contextmanager
def replaced(tensors: Sequence[Tensor], values: Sequence[Tensor]) -> Iterator[None]:
    """Within, `tensors` hold `values`; afterwards again what they held before."""
    kept = [tensor.detach().clone() for tensor in tensors]
    _copy(values, tensors)
    try:
        yield
    finally:
        _copy(kept, tensors)


@torch.no_grad()
def _copy(values: Sequence[Tensor], tensors: Sequence[Tensor]) -> None:
    for value, tensor in zip(values, tensors, strict=True):
        tensor.copy_(value)
