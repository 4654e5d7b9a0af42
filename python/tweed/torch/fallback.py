"""The backend where no C++ compiler is: a process group in Python over the same engine.

It does what the C++ backend does, with some tens of microseconds more per call, and under the GIL. Methods
have the names that torch calls: those of its C++ trampoline (`allreduce`), and of its Python side. Without
some of them torch takes a Python subclass for a group without name, backend and devices, and device meshes,
FSDP2, DTensor and functional collectives fail.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import _create_work_from_future

from tweed.errors import DeadlineExceeded, TweedError, UsageError
from tweed.torch import engine
from tweed.torch.engine import ANY_RANK, Operation
from tweed.torch.flight import Flight, Work
from tweed.torch.host_memory import Call
from tweed.torch.memory import empty
from tweed.torch.reconfigure import NO_MEMBERS, Reconfigurable

if TYPE_CHECKING:
    from tweed._core import Group


Tensors = list[Tensor]
T = TypeVar("T")

_UNSET = timedelta(milliseconds=-1)  # torch's kUnsetTimeout

# torch's stubs give each method overloads that an overriding method need not have.
_ProcessGroup: Any = dist.ProcessGroup


class PythonGroup(_ProcessGroup):  # type: ignore[misc]
    """A process group over the engine's group. Made by `tweed.torch.backend.create`."""

    def __init__(self, group: Group | None, given: Any, reconfigurable: Reconfigurable) -> None:
        super().__init__(given.group_rank, given.group_size)
        from tweed import _core

        self._group, self._reconfigurable = group, reconfigurable
        self._engine = engine.table(_core.engine_table())
        self._rank, self._size = given.group_rank, given.group_size
        self._timeout: timedelta = given.timeout
        self._name, self._desc = given.group_id, ""
        self._sequence = 0
        self._together: list[Flight] | None = None  # those of the coalescing block that is open

    def submit(self, call: Call, timeout: timedelta = _UNSET) -> Flight:
        """Starts one operation; `timeout` unset means the group's."""
        chosen = self._timeout if timeout == _UNSET else timeout
        call.request.timeout_ms = round(chosen.total_seconds() * 1000)
        return Flight(self._engine, self._address(), call)

    def _address(self) -> int:
        if self._group is None:
            raise UsageError(NO_MEMBERS)
        return self._group.address()

    def _launch(self, call: Call, opts: Any = None) -> Work:
        self._sequence += 1
        flight = self.submit(call, getattr(opts, "timeout", _UNSET))
        if self._together is not None:
            self._together.append(flight)
        return Work([flight], self._sequence)

    def _start_coalescing(self, device: torch.device) -> None:
        self._together = []

    def _end_coalescing(self, device: torch.device) -> dist.Work:
        flights, self._together = self._together or [], None
        return Work(flights, self._sequence)

    def _set_sequence_number_for_group(self) -> None:
        """Nothing to agree on: all start at 0."""

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        return device.type == "cpu"

    def allocate_tensor(self, size: int, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return empty(size, dtype=dtype, device=device)

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout

    def abort(self) -> None:
        if self._group is not None:
            self._engine.abort(self._address(), b"abort() was called on the process group")

    def get_reconfigure_handle(self) -> str:
        return self._reconfigurable.handle

    def reconfigure(self, opts: Any) -> dist.Work:
        timeout_s = None if opts.timeout is None else opts.timeout.total_seconds()
        ordered = not isinstance(opts.handles, set)
        self._group, self._rank = self._reconfigurable.make(opts.uuid, list(opts.handles), ordered, timeout_s)
        self._size, self._sequence = len(opts.handles), 0
        return Work([], self._sequence)

    def rank(self) -> int:
        return int(self._rank)

    def size(self) -> int:
        return int(self._size)

    def getBackendName(self) -> str:
        return "tweed"

    def getGroupName(self) -> str:
        return str(self._name)

    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupDesc(self) -> str:
        return self._desc

    def setGroupDesc(self, desc: str) -> None:
        self._desc = desc

    def _get_backend(self, device: torch.device) -> PythonGroup:
        return self

    getRank = rank
    getSize = size
    group_name = property(getGroupName)
    group_desc = property(getGroupDesc)
    name = getBackendName
    _set_group_name = setGroupName
    _set_group_desc = setGroupDesc
    supports_coalescing = True
    supports_splitting = False
    supports_reconfigure = True

    # Collectives.

    def allreduce(self, tensors: Tensors, opts: Any) -> dist.Work:
        tensor = _only(tensors)
        if tensor.is_sparse:
            return sparse_sum(self, tensor, opts.reduceOp)
        call = Call(Operation.ALL_REDUCE).describe(tensor).reduce(opts.reduceOp, tensor).update(tensor)
        return self._launch(call, opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any) -> dist.Work:
        return _join([self.allreduce([tensor], opts) for tensor in tensors])

    def broadcast(self, tensors: Tensors, opts: Any) -> dist.Work:
        tensor = _only(tensors)
        call = Call(Operation.BROADCAST, self._root(opts)).describe(tensor).update(tensor)
        return self._launch(call, opts)

    def reduce(self, tensors: Tensors, opts: Any) -> dist.Work:
        tensor = _only(tensors)
        call = Call(Operation.REDUCE, self._root(opts)).describe(tensor).reduce(opts.reduceOp, tensor)
        return self._launch(call.update(tensor) if self._is_root(opts) else call.read(tensor), opts)

    def allgather(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> dist.Work:
        tensor = _only(inputs)
        call = Call(Operation.ALL_GATHER).describe(tensor).read(tensor)
        for part in self._one_each(_only(outputs), tensor):
            call.write(part)
        return self._launch(call, opts)

    def all_gather_single(self, output: Tensor, tensor: Tensor, opts: Any) -> dist.Work:
        self._check_whole(output, tensor)
        call = Call(Operation.ALL_GATHER).describe(tensor).read(tensor).write(output, self._even())
        return self._launch(call, opts)

    def allgather_coalesced(self, outputs: list[Tensors], inputs: Tensors, opts: Any = None) -> dist.Work:
        columns = [list(column) for column in zip(*outputs, strict=True)]
        pairs = zip(columns, inputs, strict=True)
        return _join([self.allgather([column], [tensor], opts) for column, tensor in pairs])

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> dist.Work:
        pairs = zip(outputs, inputs, strict=True)
        return _join([self.all_gather_single(output, tensor, opts) for output, tensor in pairs])

    def reduce_scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> dist.Work:
        tensor = _only(outputs)
        call = Call(Operation.REDUCE_SCATTER).describe(tensor).reduce(opts.reduceOp, tensor)
        for part in self._one_each(_only(inputs), tensor):
            call.read(part)
        return self._launch(call.write(tensor), opts)

    def reduce_scatter_single(self, output: Tensor, tensor: Tensor, opts: Any) -> dist.Work:
        self._check_whole(tensor, output)
        call = Call(Operation.REDUCE_SCATTER).describe(output).reduce(opts.reduceOp, output)
        return self._launch(call.read(tensor, self._even()).write(output), opts)

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> dist.Work:
        pairs = zip(outputs, inputs, strict=True)
        return _join([self.reduce_scatter_single(output, tensor, opts) for output, tensor in pairs])

    def gather(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> dist.Work:
        tensor = _only(inputs)
        call = Call(Operation.GATHER, self._root(opts)).describe(tensor).read(tensor)
        for part in self._one_each(_only(outputs), tensor) if self._is_root(opts) else []:
            call.write(part)
        return self._launch(call, opts)

    def gather_single(self, output: Tensor, tensor: Tensor, opts: Any) -> dist.Work:
        call = Call(Operation.GATHER, self._root(opts)).describe(tensor).read(tensor)
        if self._is_root(opts):
            self._check_whole(output, tensor)
            call.write(output, self._even())
        return self._launch(call, opts)

    def scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> dist.Work:
        tensor = _only(outputs)
        call = Call(Operation.SCATTER, self._root(opts)).describe(tensor)
        for part in self._one_each(_only(inputs), tensor) if self._is_root(opts) else []:
            call.read(part)
        return self._launch(call.write(tensor), opts)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any) -> dist.Work:
        if len(inputs) != self._size or len(outputs) != self._size:
            raise UsageError(f"expected {self._size} inputs and outputs, one per rank")
        call = Call(Operation.ALL_TO_ALL).describe(inputs[0])
        for tensor, output in zip(inputs, outputs, strict=True):
            call.read(tensor).write(output)
        return self._launch(call, opts)

    def all_to_all_single(
        self, output: Tensor, tensor: Tensor, output_splits: list[int], input_splits: list[int], opts: Any
    ) -> dist.Work:
        call = Call(Operation.ALL_TO_ALL).describe(tensor)
        call.read(tensor, self._splits(input_splits, tensor))
        call.write(output, self._splits(output_splits, output))
        return self._launch(call, opts)

    def barrier(self, opts: Any = None) -> dist.Work:
        return self._launch(Call(Operation.BARRIER), opts)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        monitored_barrier(self, self._timeout if timeout is None else timeout, wait_all_ranks)

    # Point to point.

    def send(self, tensors: Tensors, peer: int, tag: int = 0) -> dist.Work:
        return self._point(Operation.SEND, _contiguous(tensors), peer, tag)

    def recv(self, tensors: Tensors, peer: int, tag: int = 0) -> dist.Work:
        return self._point(Operation.RECV, _contiguous(tensors), peer, tag)

    def recvAnysource(self, tensors: Tensors, tag: int = 0) -> dist.Work:
        return self._point(Operation.RECV, _contiguous(tensors), ANY_RANK, tag)

    recv_anysource = recvAnysource

    def _point(self, operation: Operation, tensor: Tensor, peer: int, tag: int) -> Work:
        call = Call(operation, peer, tag).describe(tensor)
        flight = self.submit(call.read(tensor) if operation == Operation.SEND else call.write(tensor))
        if self._together is not None:
            self._together.append(flight)
        return Work([flight], self._sequence)

    # What torch called these before 2.13.
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    alltoall_base = all_to_all_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    gather_into_tensor = gather_single

    # Checks of what this rank alone can know.

    def _root(self, opts: Any) -> int:
        if not 0 <= opts.rootRank < self._size:
            raise UsageError(
                f"the root must be a rank of the group, 0 to {self._size - 1}, not {opts.rootRank}"
            )
        return int(opts.rootRank)

    def _is_root(self, opts: Any) -> bool:
        return bool(opts.rootRank == self._rank)

    def _even(self) -> list[int]:
        return [1] * self._size

    def _splits(self, splits: list[int], tensor: Tensor) -> list[int]:
        rows = tensor.shape[0] if tensor.dim() else 0
        if not splits and rows % self._size == 0:
            return [rows // self._size] * self._size
        if len(splits) != self._size or sum(splits) != rows or min(splits) < 0:
            raise UsageError(
                f"the splits {splits} do not cut {rows} rows into one part for each of {self._size} ranks"
            )
        return splits

    def _one_each(self, parts: Tensors, like: Tensor) -> Tensors:
        if len(parts) != self._size:
            raise UsageError(f"expected {self._size} tensors, one per rank, got {len(parts)}")
        for number, part in enumerate(parts):
            if (part.numel(), part.dtype) != (like.numel(), like.dtype):
                raise UsageError(
                    f"tensor {number} of the list has {part.numel()} elements of {part.dtype}, and the other "
                    f"tensor {like.numel()} of {like.dtype}: all are alike, at all ranks. Pad them, or call "
                    "all_to_all, whose tensors may differ"
                )
        return parts

    def _check_whole(self, whole: Tensor, part: Tensor) -> None:
        if whole.dtype != part.dtype or whole.numel() != self._size * part.numel():
            raise UsageError(
                f"expected {self._size} times {part.numel()} elements of {part.dtype} in the larger tensor, "
                f"got {whole.numel()} of {whole.dtype}"
            )


def _only(items: list[T]) -> T:
    if len(items) != 1:
        raise UsageError(f"expected one tensor per process, got {len(items)}")
    return items[0]


def _contiguous(tensors: Tensors) -> Tensor:
    if not _only(tensors).is_contiguous():
        raise UsageError("input tensor has to be contiguous; pass tensor.contiguous()")
    return tensors[0]


def _join(works: list[Any]) -> Work:
    return Work([flight for work in works for flight in work.flights], works[-1].sequence if works else 0)


# What is not a single collective: the twin of csrc/point_to_point.cpp.
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
