"""What is not a single collective, for the Python process group. The twin of csrc/point_to_point.cpp."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import _create_work_from_future

from tweed.errors import DeadlineExceeded, TweedError, UsageError
from tweed.torch.call import Call
from tweed.torch.engine import Operation
from tweed.torch.flight import Flight

if TYPE_CHECKING:
    from tweed.torch.fallback import PythonGroup

_HERE, _PASSED = 0xFFFF_FFF1, 0xFFFF_FFF2  # tags of users are not negative


def sparse_sum(group: PythonGroup, tensor: Tensor, op: Any) -> dist.Work:
    """Sums sparse tensors by gathering indices and values, as Gloo does. Waits for the end."""
    if op.op != dist.ReduceOp.SUM:
        raise UsageError("sparse tensors can only be summed")
    mine = tensor.detach().coalesce().cpu()
    counts = torch.empty(group.size(), dtype=torch.int64)
    count = torch.tensor([mine._nnz()])
    call = Call(Operation.ALL_GATHER).describe(count).read(count).write(counts, [1] * group.size())
    group.submit(call).wait()
    rows = counts.tolist()
    indices = _gather_uneven(group, mine.indices().t().contiguous(), rows)
    values = _gather_uneven(group, mine.values().contiguous(), rows)
    total = torch.sparse_coo_tensor(indices.t(), values, tensor.shape, check_invariants=False)
    with torch.no_grad():
        tensor.copy_(total.coalesce())
    future: torch.futures.Future[list[Tensor]] = torch.futures.Future()
    future.set_result([tensor])
    work: dist.Work = _create_work_from_future(future)
    return work


def _gather_uneven(group: PythonGroup, mine: Tensor, rows: Sequence[int]) -> Tensor:
    """Every rank's `rows[r]` rows, one after the other."""
    whole = torch.empty((sum(rows), *mine.shape[1:]), dtype=mine.dtype)
    call = Call(Operation.ALL_TO_ALL).describe(mine).write(whole, rows)
    for _ in rows:
        call.read(mine)
    group.submit(call).wait()
    return whole


def monitored_barrier(group: PythonGroup, timeout: timedelta, all_ranks: bool) -> None:
    """Rank 0 hears from everybody, then lets everybody go; so it can say who did not come.

    Raises:
      DeadlineExceeded: on rank 0, naming who did not come; elsewhere: rank 0 did not let this one go.
    """
    seconds = timeout.total_seconds()
    if seconds <= 0:
        raise DeadlineExceeded(
            f"Rank {group.rank()} timed out in monitoredBarrier after 0 ms: no time was given"
        )
    if group.rank() != 0:
        _report(group, seconds)
        return
    others = range(1, group.size())
    arrivals = [_message(group, Operation.RECV, rank, _HERE) for rank in others]
    end = time.monotonic() + seconds
    missing: list[int] = []
    for rank, arrival in zip(others, arrivals, strict=True):
        try:
            arrival.wait(max(0.001, end - time.monotonic()))
        except TweedError:
            missing.append(rank)
            if not all_ranks:
                break
    if missing:
        names = ", ".join(map(str, missing))
        waited = f"{round(seconds * 1000)} ms"
        raise DeadlineExceeded(f"Ranks {names} failed to pass monitoredBarrier in {waited}")
    for rank in others:
        _message(group, Operation.SEND, rank, _PASSED).wait(seconds)


def _report(group: PythonGroup, seconds: float) -> None:
    """Tells rank 0 that this one is there, and waits until it lets this one go."""
    try:
        _message(group, Operation.SEND, 0, _HERE).wait(seconds)
        _message(group, Operation.RECV, 0, _PASSED).wait(seconds)
    except TweedError as error:
        raise type(error)(
            f"Rank {group.rank()} successfully reached monitoredBarrier, but received errors while waiting "
            f"for send/recv from rank 0: {error}"
        ) from error


def _message(group: PythonGroup, operation: Operation, peer: int, tag: int) -> Flight:
    byte = torch.zeros(1, dtype=torch.uint8)
    call = Call(operation, peer, tag).describe(byte)
    return group.submit(call.read(byte) if operation == Operation.SEND else call.write(byte))
