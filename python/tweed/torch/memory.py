"""Tensors in memory that the other ranks of this host read and write in place."""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from tweed.errors import UsageError
from tweed.torch.node import node

if TYPE_CHECKING:
    from tweed._core import Node


def empty(
    *size: int | Sequence[int], dtype: torch.dtype | None = None, device: str | torch.device = "cpu"
) -> torch.Tensor:
    """An uninitialised tensor in shared memory. Collectives on it skip a copy between ranks of one host.

    Args:
      size: `[*size]`; `tweed.empty(3, 4)` or `tweed.empty((3, 4))`.
      dtype: any; `None`: torch's default.
      device: must be the CPU.

    Returns:
      A contiguous tensor, 64-byte aligned. Its memory is given back when its last view is gone.

    Raises:
      UsageError: another device, or the engine has no shared memory left (names its size).
      ForkedProcess: the engine was started in a parent of this process.

    In a forked child it is a tensor of the child's own, as any other: it has the content at the fork, and
    neither process sees what the other writes later. Where a process holds more than 1 GiB of such memory,
    what torch allocates through the backend included, a page that the child has not written shows what the
    parent writes there, and zeros once the parent has freed the tensor.

    Cost: no copy; pages are taken at the first touch. A fork (each worker of a DataLoader with the start
    method "fork" is one) copies what such memory holds, up to 1 GiB in all, and the parent waits for it.
    """
    if torch.device(device).type != "cpu":
        raise UsageError(f"tweed.empty makes CPU tensors, not {device}; move it with .to() afterwards")
    # `empty(3, 4)` and `empty((3, 4))` mean the same.
    shape = [n for item in size for n in ((item,) if isinstance(item, int) else item)]
    dtype = dtype or torch.get_default_dtype()
    numel = math.prod(shape)
    if numel == 0:
        return torch.empty(shape, dtype=dtype)
    return _view(node(), numel * dtype.itemsize).view(dtype).view(shape)


def _view(engine: Node, size_bytes: int) -> torch.Tensor:
    """A byte tensor over fresh shared memory; frees it with the tensor's storage."""
    address = engine.alloc(size_bytes)
    buffer = (ctypes.c_uint8 * size_bytes).from_address(address)
    weakref.finalize(buffer, engine.free, address).atexit = False  # the process gives all back at its end
    return torch.frombuffer(buffer, dtype=torch.uint8)
