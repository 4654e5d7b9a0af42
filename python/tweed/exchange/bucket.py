"""Buckets: several tensors side by side in one flat buffer, so that one exchange serves them all."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from sys import getrefcount

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Item:
    """A tensor as `assign` sees it. Items of one `kind` (dtype and device) may share a bucket."""

    size_bytes: int
    kind: Hashable


def assign(items: Sequence[Item], limit_bytes: int, first_bytes: int | None = None) -> list[list[int]]:
    """Which items share a bucket.

    Args:
      items: in the order in which they become ready.
      limit_bytes: a bucket is full when it reaches this; an item is never cut.
      first_bytes: the limit of the first bucket; a small one lets the exchange begin early. None: no
        difference.

    Returns: buckets of indices into `items`, each of one kind, in the order in which buckets become ready.
    """
    done: list[list[int]] = []
    filling: dict[Hashable, list[int]] = {}
    for index, item in enumerate(items):
        bucket = filling.setdefault(item.kind, [])
        bucket.append(index)
        limit = limit_bytes if done or first_bytes is None else first_bytes
        if sum(items[member].size_bytes for member in bucket) >= limit:
            done.append(filling.pop(item.kind))
    return sorted([*done, *filling.values()], key=lambda bucket: bucket[-1])


def item(tensor: Tensor) -> Item:
    """`tensor` as `assign` sees it."""
    return Item(tensor.numel() * tensor.element_size(), (tensor.dtype, tensor.device))


class Bucket:
    """A flat buffer and one view in it per tensor.

    Args:
      flat: `[numel]`, at least as long as `room` says.
      tensors: whose shapes and strides the views take; one dtype and device.
      marked: marks follow the views, which are summed with the values: one per tensor shows whether any rank
        contributed to it, and a last one is for all that is to be said of the bucket.

    Attributes:
      flat: see above.
      views: one per tensor, in its shape. Strides are the tensor's too if it is dense, so that optimizers
        that go through both at once stay quick.
      values: `[count]`, all that the views show, side by side.
      marks: `[len(tensors) + 1]`, or `[0]` without marks.
    """

    def __init__(self, flat: Tensor, tensors: Sequence[Tensor], *, marked: bool = False) -> None:
        self._forms = [(tensor.shape, dense_strides(tensor), tensor.numel()) for tensor in tensors]
        self._marked = marked
        self.lay(flat)

    def lay(self, flat: Tensor) -> None:
        """Moves to other memory, as long as before. Values stay behind."""
        self.flat = flat
        self.views: list[Tensor] = []
        offset = 0
        for shape, strides, numel in self._forms:
            self.views.append(flat.as_strided(shape, strides, flat.storage_offset() + offset))
            offset += numel
        self.values = flat[:offset]
        self.marks = flat[offset : offset + (len(self._forms) + 1) * self._marked]
        self._uses = self._references()

    def is_shared(self, params: Sequence[Tensor]) -> bool:
        """Whether somebody else holds a view, or memory of one; or a view was given other memory.

        Args:
          params: one per view, which may hold it as its `grad`.

        Cost: 20 ns per view.
        """
        uses = self._references()
        if uses[0] != self._uses[0]:
            return True
        held = zip(uses[1:], self._uses[1:], self.views, params, strict=True)
        return uses != self._uses and any(
            now > before and param.grad is not view for now, before, view, param in held
        )

    def _references(self) -> list[int]:
        """How many tensors share the memory, and how many references Python has to each view."""
        storage = self.flat.untyped_storage()
        return [torch._C._storage_Use_Count(storage._cdata), *map(getrefcount, self.views)]


@dataclass(eq=False, slots=True)
class GradientBucket:
    """A bucket of gradients, and how far it has come in this exchange.

    Attributes:
      names: of the parameters.
      bucket: one view per parameter.
      given: indices of the parameters for which this rank has a gradient.
      work: what was started for it; None: nothing yet.
    """

    names: list[str]
    bucket: Bucket
    given: set[int] = field(default_factory=set)
    work: dist.Work | None = None

    @property
    def full(self) -> bool:
        """Whether all its gradients are there."""
        return len(self.given) == len(self.names)

    def missing(self) -> list[int]:
        """Indices of parameters for which this rank has no gradient to give."""
        return [index for index in range(len(self.names)) if index not in self.given]


def room(tensors: Sequence[Tensor], *, marked: bool = False) -> int:
    """How many elements the flat buffer of a `Bucket` of `tensors` has."""
    return sum(tensor.numel() for tensor in tensors) + (len(tensors) + 1) * marked


def dense_strides(tensor: Tensor) -> tuple[int, ...]:
    """Strides of `tensor`, or if it leaves gaps or overlaps itself, those of a dense tensor of its shape."""
    return torch.empty_like(tensor, device="meta", memory_format=torch.preserve_format).stride()


def as_bytes(tensor: Tensor, strides: tuple[int, ...] | None = None) -> memoryview:
    """The values of `tensor`, in the order of `strides`, which are those of a dense tensor; None: in its own.

    Cost: a copy, unless they lie like that in memory of the CPU.
    """
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    strides = dense_strides(tensor) if strides is None else strides
    if tensor.stride() != strides:
        tensor = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype).copy_(tensor)
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8).numpy().data
