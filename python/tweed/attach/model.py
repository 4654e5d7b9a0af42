"""Exchange of models, or of how far they have moved, between optimizer steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tweed.attach.bucket import assign, item
from tweed.attach.wire import Wire
from tweed.errors import UsageError


class ModelExchange:
    """Averages tensors over all ranks, bucket by bucket.

    Args:
      tensors: gives the tensors, always as many and of the same shapes: parameters and floating-point
        buffers.
      wire: the group.
      bucket_bytes: size of a full bucket.
      anchored: exchange how far each tensor has moved since the last exchange instead of its value. The
        results agree to rounding; what goes over the wire is small numbers, as compressors need. Costs a copy
        of the model.
    """

    def __init__(
        self, tensors: Callable[[], Sequence[Tensor]], wire: Wire, bucket_bytes: int, *, anchored: bool
    ) -> None:
        self._tensors = tensors
        self._wire = wire
        now = [tensor.detach() for tensor in tensors()]
        self._members = assign([item(tensor) for tensor in now], bucket_bytes)
        self._buckets = [wire.bucket([now[index] for index in members]) for members in self._members]
        self.anchor = [tensor.clone() for tensor in now] if anchored else None

    def exchange(self) -> None:
        """Makes the tensors equal on all ranks: the average. Waits for it."""
        self.average()
        self._wire.settle()

    @torch.no_grad()
    def average(self) -> None:
        """As `exchange`, as a part of a greater one."""
        tensors = self._tensors()
        works = []
        for members, bucket in zip(self._members, self._buckets, strict=True):
            for view, index in zip(bucket.views, members, strict=True):
                self._pack(view, tensors[index], index)
            works.append(self._wire.start(bucket))
        for members, bucket, work in zip(self._members, self._buckets, works, strict=True):
            self._wire.wait(work)
            for view, index in zip(bucket.views, members, strict=True):
                self._unpack(view, tensors[index], index)

    def _pack(self, view: Tensor, tensor: Tensor, index: int) -> None:
        moved = tensor if self.anchor is None else torch.sub(tensor, self.anchor[index], out=view)
        torch.mul(moved, self._wire.factor, out=view)

    def _unpack(self, view: Tensor, tensor: Tensor, index: int) -> None:
        if self.anchor is not None:
            self.anchor[index].add_(view)
            view = self.anchor[index]
        tensor.copy_(view)

    def load_anchor(self, saved: Sequence[Tensor]) -> None:
        """Puts back the model that ranks agreed on last. Raises UsageError if it is another model's."""
        assert self.anchor is not None  # the strategy was compared before
        if [tensor.shape for tensor in saved] != [tensor.shape for tensor in self.anchor]:
            raise UsageError("the stored state belongs to a model of other shapes")
        for kept, tensor in zip(self.anchor, saved, strict=True):
            kept.copy_(tensor)
