"""One function per operation, run on every rank and checked against `naive`. `TABLE` lists them."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from tests.torch.naive import COMPLEX, FLOATS, MOVED, REAL, SIGNED, UNSIGNED, reduced, same, value

Case = Callable[[int, int], None]
TABLE: dict[str, Case] = {}

OPS = {
    "sum": (dist.ReduceOp.SUM, [*REAL, *COMPLEX]),
    "avg": (dist.ReduceOp.AVG, [torch.float32, torch.float64]),
    "product": (dist.ReduceOp.PRODUCT, [*FLOATS, *SIGNED, *UNSIGNED]),
    "min": (dist.ReduceOp.MIN, [*FLOATS, *SIGNED, *UNSIGNED]),
    "max": (dist.ReduceOp.MAX, [*FLOATS, *SIGNED, *UNSIGNED]),
    "band": (dist.ReduceOp.BAND, [*SIGNED, *UNSIGNED, torch.bool]),
    "bor": (dist.ReduceOp.BOR, [*SIGNED, *UNSIGNED, torch.bool]),
    "bxor": (dist.ReduceOp.BXOR, [*SIGNED, *UNSIGNED, torch.bool]),
}
SHAPES = [(1,), (5, 3), (1000,), (0,), ()]


def case(fn: Case) -> Case:
    """Puts `fn` into the table."""
    TABLE[fn.__name__] = fn
    return fn


def run_table(rank: int, size: int) -> dict[str, str]:
    """Runs all of `TABLE` on this rank. Returns the traceback of each case that failed."""
    failures = {}
    for name, fn in TABLE.items():
        try:
            fn(rank, size)
        except Exception:  # noqa: BLE001 a failure of any kind is the result
            failures[name] = traceback.format_exc()
    return failures


def values(size: int, shape: tuple[int, ...], dtype: torch.dtype) -> list[Tensor]:
    """Every rank's contribution."""
    return [value(rank, shape, dtype) for rank in range(size)]


def blank(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Something to be overwritten."""
    return torch.full(shape, 7).to(dtype)


def _all_reduce(op: str, rank: int, size: int) -> None:
    reduce_op, dtypes = OPS[op]
    for dtype in dtypes:
        for shape in SHAPES:
            tensor = value(rank, shape, dtype)
            dist.all_reduce(tensor, reduce_op)
            same(tensor, reduced(op, values(size, shape, dtype)))


for _op in OPS:
    TABLE[f"all_reduce_{_op}"] = functools.partial(_all_reduce, _op)


@case
def all_reduce_premul_sum(rank: int, size: int) -> None:
    tensor = value(rank, (9,), torch.float32)
    dist.all_reduce(tensor, dist._make_nccl_premul_sum(0.5))
    same(tensor, reduced("sum", values(size, (9,), torch.float32)) * 0.5)


@case
def all_reduce_large(rank: int, size: int) -> None:
    tensor = value(rank, (300_001,), torch.float32)
    dist.all_reduce(tensor)
    same(tensor, reduced("sum", values(size, (300_001,), torch.float32)))


@case
def all_reduce_many_in_flight(rank: int, size: int) -> None:
    tensors = [value(rank, (100 + i,), torch.float32, salt=i) for i in range(20)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in reversed(works):
        work.wait()
    for i, tensor in enumerate(tensors):
        same(tensor, reduced("sum", [value(r, (100 + i,), torch.float32, salt=i) for r in range(size)]))


@case
def all_reduce_dropped_work(rank: int, size: int) -> None:
    """Nobody waits, and the tensors are dropped: memory must live until the end."""
    for _ in range(10):
        dist.all_reduce(torch.ones(50_000), async_op=True)
        dist.all_reduce(torch.ones(300, 200).t(), async_op=True)
    dist.barrier()


@case
def all_reduce_future(rank: int, size: int) -> None:
    tensor = value(rank, (1000,), torch.float64)
    work = dist.all_reduce(tensor, async_op=True)
    doubled = work.get_future().then(lambda future: future.value()[0] * 2)
    expected = reduced("sum", values(size, (1000,), torch.float64))
    same(doubled.wait(), expected * 2)
    same(tensor, expected)
    assert work.is_completed()
    assert work.get_future().done()


@case
def all_reduce_sparse(rank: int, size: int) -> None:
    def mine(r: int) -> Tensor:
        indices = torch.tensor([[r, r + 1, r], [0, 1, 0]])
        return torch.sparse_coo_tensor(
            indices, torch.ones(3, 2) * (r + 1), (size + 1, 2, 2), check_invariants=True
        )

    tensor = mine(rank)
    dist.all_reduce(tensor)
    same(tensor.to_dense(), sum(mine(r).to_dense() for r in range(size)))


@case
def all_reduce_coalesced(rank: int, size: int) -> None:
    tensors = [value(rank, (4 + i,), torch.float32) for i in range(3)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    for i, tensor in enumerate(tensors):
        same(tensor, reduced("sum", values(size, (4 + i,), torch.float32)))


@case
def broadcast(rank: int, size: int) -> None:
    for dtype in MOVED:
        for root in range(size):
            tensor = value(rank, (6, 5), dtype)
            dist.broadcast(tensor, root)
            same(tensor, value(root, (6, 5), dtype))


@case
def reduce(rank: int, size: int) -> None:
    for dtype in REAL:
        for root in range(size):
            tensor = value(rank, (77,), dtype)
            dist.reduce(tensor, root)
            if rank == root:
                same(tensor, reduced("sum", values(size, (77,), dtype)))


@case
def all_gather(rank: int, size: int) -> None:
    for dtype in MOVED:
        for shape in SHAPES:
            outputs = [blank(shape, dtype) for _ in range(size)]
            dist.all_gather(outputs, value(rank, shape, dtype))
            for actual, expected in zip(outputs, values(size, shape, dtype), strict=True):
                same(actual, expected)


@case
def all_gather_into_tensor(rank: int, size: int) -> None:
    for dtype in MOVED:
        output = blank((size * 5, 3), dtype)
        dist.all_gather_into_tensor(output, value(rank, (5, 3), dtype))
        for r in range(size):
            same(output[r * 5 :][:5], value(r, (5, 3), dtype))


@case
def all_gather_in_place(rank: int, size: int) -> None:
    """The input is its own part of the output, as FSDP does it."""
    output = blank((size * 64,), torch.float32)
    part = output.narrow(0, rank * 64, 64)
    part.copy_(value(rank, (64,), torch.float32))
    dist.all_gather_into_tensor(output, part)
    same(output, torch.cat(values(size, (64,), torch.float32)))


@case
def all_gather_into_tensor_coalesced(rank: int, size: int) -> None:
    outputs = [blank((size * n,), torch.float32) for n in (3, 8)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for output, n in zip(outputs, (3, 8), strict=True):
            dist.all_gather_into_tensor(output, value(rank, (n,), torch.float32))
    manager.wait()
    for output, n in zip(outputs, (3, 8), strict=True):
        same(output, torch.cat(values(size, (n,), torch.float32)))


@case
def all_gather_coalesced(rank: int, size: int) -> None:
    outputs = [[blank((n,), torch.int64) for n in (2, 3)] for _ in range(size)]
    group = dist.group.WORLD
    assert group is not None
    group.allgather_coalesced(outputs, [value(rank, (n,), torch.int64) for n in (2, 3)]).wait()
    for r, parts in enumerate(outputs):
        for part, n in zip(parts, (2, 3), strict=True):
            same(part, value(r, (n,), torch.int64))


@case
def reduce_scatter(rank: int, size: int) -> None:
    for dtype in REAL:
        inputs = [value(rank, (4, 3), dtype, salt=part) for part in range(size)]
        output = blank((4, 3), dtype)
        dist.reduce_scatter(output, inputs)
        same(output, reduced("sum", [value(r, (4, 3), dtype, salt=rank) for r in range(size)]))


@case
def reduce_scatter_tensor(rank: int, size: int) -> None:
    for op in ("sum", "avg", "max"):
        whole = [value(r, (size * 50,), torch.float32) for r in range(size)]
        mine, output = whole[rank].clone(), blank((50,), torch.float32)
        dist.reduce_scatter_tensor(output, mine, OPS[op][0])
        same(output, reduced(op, whole)[rank * 50 :][:50])
        same(mine, whole[rank])  # inputs are not written


@case
def reduce_scatter_tensor_coalesced(rank: int, size: int) -> None:
    sizes = (4, 9)
    outputs = [blank((n,), torch.float32) for n in sizes]
    with dist._coalescing_manager(async_ops=True) as manager:
        for output, n in zip(outputs, sizes, strict=True):
            dist.reduce_scatter_tensor(output, value(rank, (size * n,), torch.float32))
    manager.wait()
    for output, n in zip(outputs, sizes, strict=True):
        same(output, reduced("sum", values(size, (size * n,), torch.float32))[rank * n :][:n])


@case
def gather(rank: int, size: int) -> None:
    for dtype in MOVED:
        for root in range(size):
            outputs = [blank((3, 2), dtype) for _ in range(size)] if rank == root else None
            dist.gather(value(rank, (3, 2), dtype), outputs, root)
            for actual, expected in zip(outputs or [], values(size, (3, 2), dtype), strict=False):
                same(actual, expected)


@case
def scatter(rank: int, size: int) -> None:
    for dtype in MOVED:
        for root in range(size):
            parts = [value(root, (3,), dtype, salt=part) for part in range(size)]
            output = blank((3,), dtype)
            dist.scatter(output, parts if rank == root else None, root)
            same(output, parts[rank])


@case
def all_to_all(rank: int, size: int) -> None:
    """Parts of different sizes: rank r sends `(r + 1) * (to + 1)` elements to rank `to`."""
    for dtype in MOVED:
        inputs = [value(rank, ((rank + 1) * (to + 1),), dtype, salt=to) for to in range(size)]
        outputs = [blank(((r + 1) * (rank + 1),), dtype) for r in range(size)]
        dist.all_to_all(outputs, inputs)
        for r, output in enumerate(outputs):
            same(output, value(r, ((r + 1) * (rank + 1),), dtype, salt=rank))


@case
def all_to_all_single(rank: int, size: int) -> None:
    whole = [value(r, (size * 4, 3), torch.int32) for r in range(size)]
    output = blank((size * 4, 3), torch.int32)
    dist.all_to_all_single(output, whole[rank])
    same(output, torch.cat([w[rank * 4 :][:4] for w in whole]))


@case
def all_to_all_single_uneven(rank: int, size: int) -> None:
    sends = [[(r + to) % 3 for to in range(size)] for r in range(size)]  # rows, some of them none
    inputs = [value(r, (sum(sends[r]), 2), torch.float32) for r in range(size)]
    received = [sends[r][rank] for r in range(size)]
    output = blank((sum(received), 2), torch.float32)
    dist.all_to_all_single(output, inputs[rank], received, sends[rank])
    same(output, torch.cat([inputs[r].split(sends[r])[rank] for r in range(size)]))


@case
def send_recv(rank: int, size: int) -> None:
    """Around the ring, two messages with their tags crossed."""
    to, source = (rank + 1) % size, (rank - 1) % size
    if size == 1:
        return
    sent = [dist.isend(value(rank, (10,), torch.float32, salt=tag), to, tag=tag) for tag in (3, 4)]
    for tag in (4, 3):
        tensor = blank((10,), torch.float32)
        assert dist.recv(tensor, source, tag=tag) == source
        same(tensor, value(source, (10,), torch.float32, salt=tag))
    for work in sent:
        work.wait()


@case
def recv_any_source(rank: int, size: int) -> None:
    if rank != 0:
        dist.send(value(rank, (5,), torch.int64), 0, tag=9)
        return
    seen = set()
    for _ in range(size - 1):
        tensor = blank((5,), torch.int64)
        source = dist.recv(tensor, tag=9)
        same(tensor, value(source, (5,), torch.int64))
        seen.add(source)
    assert seen == set(range(1, size))


@case
def batched_p2p(rank: int, size: int) -> None:
    if size == 1:
        return
    received = blank((2000,), torch.float32)
    ops = [
        dist.P2POp(dist.isend, value(rank, (2000,), torch.float32), (rank + 1) % size),
        dist.P2POp(dist.irecv, received, (rank - 1) % size),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    same(received, value((rank - 1) % size, (2000,), torch.float32))


@case
def barriers(rank: int, size: int) -> None:
    dist.barrier()
    dist.barrier(async_op=True).wait()
    group = dist.group.WORLD
    assert group is not None
    group.monitored_barrier(timedelta(seconds=30), wait_all_ranks=True)


@case
def object_collectives(rank: int, size: int) -> None:
    gathered: list[object] = [None] * size
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * rank})
    assert gathered == [{"rank": r, "text": "x" * r} for r in range(size)]
    objects = [rank, "from", rank]
    dist.broadcast_object_list(objects, src=size - 1)
    assert objects == [size - 1, "from", size - 1]
    mine: list[object] = [None]
    dist.scatter_object_list(mine, [f"for {r}" for r in range(size)] if rank == 0 else None, src=0)
    assert mine == [f"for {rank}"]


@case
def non_contiguous(rank: int, size: int) -> None:
    """Strided views give what their contiguous copies would, and only the view's elements are touched."""
    base = torch.zeros(6, 8)
    view = base[:, ::2]
    view.copy_(value(rank, (6, 4), torch.float32))
    dist.all_reduce(view)
    same(view, reduced("sum", values(size, (6, 4), torch.float32)))
    same(base[:, 1::2], torch.zeros(6, 4))
    turned = value(rank, (4, 6), torch.float32).t()
    dist.broadcast(turned, size - 1)
    same(turned, value(size - 1, (4, 6), torch.float32).t())
    image = value(rank, (2, 3, 4, 5), torch.float32).to(memory_format=torch.channels_last)
    dist.all_reduce(image)
    same(image, reduced("sum", values(size, (2, 3, 4, 5), torch.float32)))


@case
def parameters(rank: int, size: int) -> None:
    """Leaves that require a gradient are written like any tensor, also through a view's copy."""
    parameter = torch.nn.Parameter(value(rank, (4, 4), torch.float32))
    dist.broadcast(parameter, 0)
    same(parameter.detach(), value(0, (4, 4), torch.float32))
    turned = torch.nn.Parameter(value(rank, (4, 6), torch.float32).t())
    dist.all_reduce(turned)
    same(turned.detach(), reduced("sum", values(size, (4, 6), torch.float32)).t())


@case
def sub_groups(rank: int, size: int) -> None:
    """All groups of neighbours, at once and with other numbers than in the world."""
    pairs = [[r, (r + 1) % size] for r in range(size)] if size > 2 else [[1, 0]]
    groups = [dist.new_group(sorted(pair)) for pair in pairs]
    for pair, group in zip(pairs, groups, strict=True):
        if rank not in pair:
            continue
        tensor = value(rank, (40,), torch.float32)
        dist.all_reduce(tensor, group=group)
        same(tensor, reduced("sum", [value(r, (40,), torch.float32) for r in pair]))
        dist.broadcast(tensor, max(pair), group=group)
    for pair, group in zip(pairs, groups, strict=True):
        if rank in pair:
            dist.destroy_process_group(group)


@case
def sequence_numbers(rank: int, size: int) -> None:
    group = dist.group.WORLD
    assert group is not None
    before = group._get_sequence_number_for_group()
    dist.all_reduce(torch.ones(1))
    dist.barrier()
    assert group._get_sequence_number_for_group() == before + 2
