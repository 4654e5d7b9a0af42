"""One call of a collective, made ready for the engine: what lies in host memory is used in place, and tensors
of an accelerator, or with other strides, pass through a copy there. The Python twin of csrc/host_memory.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tweed.errors import UsageError
from tweed.torch.engine import BYTES, DTYPES, Operation, Request, Segment

_COMPLEX = {torch.complex64: torch.float32, torch.complex128: torch.float64}
_ADDITIVE = (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.PREMUL_SUM)


class Call:
    """Collects segments of host memory, and what must outlive the operation.

    Contiguous CPU tensors are used in place; others pass through a contiguous host copy.

    Attributes:
      results: the caller's outputs, in order.
      alive: all whose memory the engine uses.
      back: (output, host copy) pairs to copy when the operation has ended.
    """

    def __init__(self, operation: Operation, root: int = 0, tag: int = 0) -> None:
        self.request = Request(operation=operation, root=root, tag=tag, timeout_ms=-1, factor=1.0)
        self.inputs: list[Segment] = []
        self.outputs: list[Segment] = []
        self.results: list[Tensor] = []
        self.alive: list[Tensor] = []
        self.back: list[tuple[Tensor, Tensor]] = []

    def describe(self, tensor: Tensor) -> Call:
        """Names dtype and shape of the call's data."""
        self.request.dtype = DTYPES.get(tensor.dtype, BYTES)
        self.request.shape = str(list(tensor.shape)).encode()
        return self

    def reduce(self, op: Any, tensor: Tensor) -> Call:
        """Makes it a reduction. Complex numbers add up part by part.

        Raises:
          UsageError: this operator is not defined for this dtype.
        """
        kind = getattr(op, "op", op)
        dtype = _COMPLEX.get(tensor.dtype, tensor.dtype) if kind in _ADDITIVE else tensor.dtype
        if dtype not in DTYPES:
            raise UsageError(f"cannot reduce {tensor.dtype} with {op}; convert it first")
        self.request.reduce_op = int(kind)
        self.request.dtype = DTYPES[dtype]
        self.request.factor = _factor(op)
        return self

    def read(self, tensor: Tensor, splits: Sequence[int] | None = None) -> Call:
        """Adds an input; with `splits`, one segment for each such number of rows."""
        self.inputs += _parts(self._source(tensor), splits)
        return self

    def write(self, tensor: Tensor, splits: Sequence[int] | None = None) -> Call:
        """Adds an output; `splits` as in `read`."""
        self.outputs += _parts(self._target(tensor, False), splits)
        return self

    def update(self, tensor: Tensor) -> Call:
        """Adds a tensor that is input and output."""
        segments = _parts(self._target(tensor, True), None)
        self.inputs += segments
        self.outputs += segments
        return self

    def settle(self) -> None:
        """After the end: copies staged results back, and lets go of everything but `results`."""
        with torch.no_grad():
            for target, host in self.back:
                target.copy_(host)
        self.back.clear()
        self.alive.clear()

    def _source(self, tensor: Tensor) -> Tensor:
        host = tensor.detach() if _in_place(tensor) else _host_like(tensor).copy_(tensor.detach())
        self.alive.append(host)
        return host

    def _target(self, tensor: Tensor, filled: bool) -> Tensor:
        self.results.append(tensor)
        if _in_place(tensor):
            return tensor.detach()
        host = self._source(tensor) if filled else _host_like(tensor)
        self.back.append((tensor, host))
        return host


def _in_place(tensor: Tensor) -> bool:
    if tensor.layout != torch.strided:
        raise UsageError("expected a dense tensor; call .to_dense() first")
    lazy = tensor.is_conj() or tensor.is_neg()  # a view that torch has not computed yet
    return tensor.device.type == "cpu" and tensor.is_contiguous() and not lazy


def _host_like(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)


def _parts(host: Tensor, splits: Sequence[int] | None) -> list[Segment]:
    if splits is None:
        return [Segment(host.data_ptr(), host.nbytes)]
    row_bytes = host.nbytes // max(1, sum(splits))
    at = host.data_ptr()
    segments = []
    for rows in splits:
        segments.append(Segment(at, rows * row_bytes))
        at += rows * row_bytes
    return segments


def _factor(op: Any) -> float:
    """The factor of PREMUL_SUM: torch shows it to Python only through pickling."""
    premultiplied = getattr(op, "op", op) == dist.ReduceOp.PREMUL_SUM
    return float(op.__getstate__()[1]) if premultiplied else 1.0
