"""Buffers of members that come and go: how far each has moved, and what becomes of the mean of that.

A member contributes movements, which are zero for what has not moved. So masks of infinities, tables and
packed weights keep their bits; complex values go as pairs. Of whole numbers the mean movement is rounded, as
members may have counted a different number of batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tweed.errors import UsageError

#: A mean of whole numbers of this size, formed in float32, is off by less than a half.
_MOST_MOVED = 2**20


def numel(buffer: Tensor) -> int:
    """How many values a movement of `buffer` has."""
    return buffer.numel() * (2 if buffer.is_complex() else 1)


def movement(buffer: Tensor, begun: Tensor) -> Tensor:
    """How far `buffer` has moved from where it was, `[numel]`, float64.

    Raises: UsageError for whole numbers that have moved too far for a sum of floats.
    """
    now, before = _real(buffer), _real(begun)
    still = (now == before) | ((now != now) & (before != before))  # NaN stays NaN
    moved = (now.double() - before.double()).masked_fill_(still, 0)
    if not now.is_floating_point() and moved.numel() and float(moved.abs().max()) > _MOST_MOVED:
        raise UsageError(
            f"a buffer of whole numbers, {buffer.dtype} of shape {list(buffer.shape)}, has moved by more "
            f"than {_MOST_MOVED} in a step, and members exchange how far buffers move as floats, which do "
            "not hold that exactly. Keep such values outside of the model, or in a float buffer"
        )
    return moved.reshape(-1)


@torch.no_grad()
def move(buffers: Sequence[Tensor], begun: Sequence[Tensor], means: Iterator[Tensor]) -> None:
    """Buffers become what they were when the step began, moved by the means."""
    for buffer, start in zip(buffers, begun, strict=True):
        before = _real(start)
        mean = next(means).view(before.shape)
        _real(buffer).copy_(before + mean if before.is_floating_point() else before + mean.round().long())


def _real(buffer: Tensor) -> Tensor:
    """A view of the same memory, in which complex values are pairs."""
    return torch.view_as_real(buffer) if buffer.is_complex() else buffer


class WholeModel:
    """A model as members keep it: with the buffers that its own state leaves out."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def state_dict(self) -> dict[str, Any]:
        """The model's, and each buffer that is not persistent by its name."""
        return {**dict(self._left_out()), **self._model.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Loads the model and the buffers that its own state leaves out, at all members."""
        left_out = dict(self._left_out())
        self._model.load_state_dict({name: value for name, value in state.items() if name not in left_out})
        for name, buffer in left_out.items():
            buffer.copy_(state[name])

    def _left_out(self) -> Iterable[tuple[str, Tensor]]:
        kept = self._model.state_dict()
        return ((name, buffer) for name, buffer in self._model.named_buffers() if name not in kept)
