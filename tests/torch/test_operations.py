"""Operations x dtypes x bindings x transports on real ranks, against a naive computation.

One function per operation runs on every rank. `TABLE` lists them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import product

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from tests.torch.naive import (
    COMPLEX,
    FLOATS,
    MOVED,
    REAL,
    SIGNED,
    UNSIGNED,
    Case,
    check,
    failures_of,
    reduced,
    same,
    value,
)
from tweed.testbed import run_ranks

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
F32 = torch.float32


def case(fn: Case) -> Case:
    """Puts `fn` into the table."""
    TABLE[fn.__name__] = fn
    return fn


def run_table(rank: int, size: int) -> dict[str, str]:
    """Runs all of `TABLE` on this rank."""
    return failures_of(TABLE, rank, size)


def values(size: int, shape: tuple[int, ...], dtype: torch.dtype = F32, salt: int = 0) -> list[Tensor]:
    """Every rank's contribution."""
    return [value(rank, shape, dtype, salt) for rank in range(size)]


def total(size: int, shape: tuple[int, ...], dtype: torch.dtype = F32, salt: int = 0) -> Tensor:
    """Their sum."""
    return reduced("sum", values(size, shape, dtype, salt))


def blank(shape: tuple[int, ...], dtype: torch.dtype = F32) -> Tensor:
    """Something to be overwritten."""
    return torch.full(shape, 7).to(dtype)


def all_same(actual: list[Tensor], expected: list[Tensor]) -> None:
    """As `same`, for as many of each."""
    for one, other in zip(actual, expected, strict=True):
        same(one, other)


def world() -> dist.ProcessGroup:
    """The default group."""
    group = dist.group.WORLD
    assert group is not None
    return group


@contextmanager
def coalesced() -> Iterator[None]:
    """Calls within are one; it has ended afterwards."""
    with dist._coalescing_manager(async_ops=True) as manager:
        yield
    manager.wait()


def _all_reduce(op: str, rank: int, size: int) -> None:
    reduce_op, dtypes = OPS[op]
    for dtype, shape in product(dtypes, SHAPES):
        tensor = value(rank, shape, dtype)
        dist.all_reduce(tensor, reduce_op)
        same(tensor, reduced(op, values(size, shape, dtype)))


for _op in OPS:
    TABLE[f"all_reduce_{_op}"] = functools.partial(_all_reduce, _op)


@case
def all_reduce_premul_sum(rank: int, size: int) -> None:
    tensor = value(rank, (9,), F32)
    dist.all_reduce(tensor, dist._make_nccl_premul_sum(0.5))
    same(tensor, total(size, (9,)) * 0.5)


@case
def all_reduce_large(rank: int, size: int) -> None:
    tensor = value(rank, (300_001,), F32)
    dist.all_reduce(tensor)
    same(tensor, total(size, (300_001,)))


@case
def all_reduce_many_in_flight(rank: int, size: int) -> None:
    tensors = [value(rank, (100 + i,), F32, salt=i) for i in range(20)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in reversed(works):
        work.wait()
    all_same(tensors, [total(size, (100 + i,), salt=i) for i in range(20)])


@case
def all_reduce_dropped_work(rank: int, size: int) -> None:
    """Nobody waits, and the tensors are dropped: memory must live until the end."""
    for _ in range(10):
        dist.all_reduce(torch.ones(50_000), async_op=True)
        dist.all_reduce(torch.ones(300, 200).t(), async_op=True)
    dist.barrier()


@case
def all_reduce_future(rank: int, size: int) -> None:
    tensor, expected = value(rank, (1000,), torch.float64), total(size, (1000,), torch.float64)
    work = dist.all_reduce(tensor, async_op=True)
    doubled = work.get_future().then(lambda future: future.value()[0] * 2)
    same(doubled.wait(), expected * 2)
    same(tensor, expected)
    assert work.is_completed() and work.get_future().done()


@case
def all_reduce_sparse(rank: int, size: int) -> None:
    def mine(r: int) -> Tensor:
        indices, ones = torch.tensor([[r, r + 1, r], [0, 1, 0]]), torch.ones(3, 2) * (r + 1)
        return torch.sparse_coo_tensor(indices, ones, (size + 1, 2, 2), check_invariants=True)

    tensor = mine(rank)
    dist.all_reduce(tensor)
    same(tensor.to_dense(), sum(mine(r).to_dense() for r in range(size)))


@case
def all_reduce_coalesced(rank: int, size: int) -> None:
    tensors = [value(rank, (4 + i,), F32) for i in range(3)]
    with coalesced():
        for tensor in tensors:
            dist.all_reduce(tensor)
    all_same(tensors, [total(size, (4 + i,)) for i in range(3)])


@case
def broadcast(rank: int, size: int) -> None:
    for dtype, root in product(MOVED, range(size)):
        tensor = value(rank, (6, 5), dtype)
        dist.broadcast(tensor, root)
        same(tensor, value(root, (6, 5), dtype))


@case
def reduce(rank: int, size: int) -> None:
    for dtype, root in product(REAL, range(size)):
        tensor = value(rank, (77,), dtype)
        dist.reduce(tensor, root)
        if rank == root:
            same(tensor, total(size, (77,), dtype))


@case
def all_gather(rank: int, size: int) -> None:
    for dtype, shape in product(MOVED, SHAPES):
        outputs = [blank(shape, dtype) for _ in range(size)]
        dist.all_gather(outputs, value(rank, shape, dtype))
        all_same(outputs, values(size, shape, dtype))


@case
def all_gather_into_tensor(rank: int, size: int) -> None:
    for dtype in MOVED:
        output = blank((size * 5, 3), dtype)
        dist.all_gather_into_tensor(output, value(rank, (5, 3), dtype))
        all_same([output[r * 5 :][:5] for r in range(size)], values(size, (5, 3), dtype))


@case
def all_gather_in_place(rank: int, size: int) -> None:
    """The input is its own part of the output, as FSDP does it."""
    output = blank((size * 64,))
    part = output.narrow(0, rank * 64, 64)
    part.copy_(value(rank, (64,), F32))
    dist.all_gather_into_tensor(output, part)
    same(output, torch.cat(values(size, (64,))))


@case
def all_gather_into_tensor_coalesced(rank: int, size: int) -> None:
    outputs = {n: blank((size * n,)) for n in (3, 8)}
    with coalesced():
        for n, output in outputs.items():
            dist.all_gather_into_tensor(output, value(rank, (n,), F32))
    for n, output in outputs.items():
        same(output, torch.cat(values(size, (n,))))


@case
def all_gather_coalesced(rank: int, size: int) -> None:
    outputs = [[blank((n,), torch.int64) for n in (2, 3)] for _ in range(size)]
    world().allgather_coalesced(outputs, [value(rank, (n,), torch.int64) for n in (2, 3)]).wait()
    for r, parts in enumerate(outputs):
        all_same(parts, [value(r, (n,), torch.int64) for n in (2, 3)])


@case
def reduce_scatter(rank: int, size: int) -> None:
    for dtype in REAL:
        output = blank((4, 3), dtype)
        dist.reduce_scatter(output, [value(rank, (4, 3), dtype, salt=part) for part in range(size)])
        same(output, total(size, (4, 3), dtype, salt=rank))


@case
def reduce_scatter_tensor(rank: int, size: int) -> None:
    for op in ("sum", "avg", "max"):
        whole = values(size, (size * 50,))
        mine, output = whole[rank].clone(), blank((50,))
        dist.reduce_scatter_tensor(output, mine, OPS[op][0])
        same(output, reduced(op, whole)[rank * 50 :][:50])
        same(mine, whole[rank])  # inputs are not written


@case
def reduce_scatter_tensor_coalesced(rank: int, size: int) -> None:
    outputs = {n: blank((n,)) for n in (4, 9)}
    with coalesced():
        for n, output in outputs.items():
            dist.reduce_scatter_tensor(output, value(rank, (size * n,), F32))
    for n, output in outputs.items():
        same(output, total(size, (size * n,))[rank * n :][:n])


@case
def gather(rank: int, size: int) -> None:
    for dtype, root in product(MOVED, range(size)):
        outputs = [blank((3, 2), dtype) for _ in range(size)] if rank == root else None
        dist.gather(value(rank, (3, 2), dtype), outputs, root)
        if outputs is not None:
            all_same(outputs, values(size, (3, 2), dtype))


@case
def scatter(rank: int, size: int) -> None:
    for dtype, root in product(MOVED, range(size)):
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
        all_same(outputs, [value(r, ((r + 1) * (rank + 1),), dtype, salt=rank) for r in range(size)])


@case
def all_to_all_single(rank: int, size: int) -> None:
    whole = values(size, (size * 4, 3), torch.int32)
    output = blank((size * 4, 3), torch.int32)
    dist.all_to_all_single(output, whole[rank])
    same(output, torch.cat([w[rank * 4 :][:4] for w in whole]))


@case
def all_to_all_single_uneven(rank: int, size: int) -> None:
    sends = [[(r + to) % 3 for to in range(size)] for r in range(size)]  # rows, some of them none
    inputs = [value(r, (sum(sends[r]), 2), F32) for r in range(size)]
    received = [sends[r][rank] for r in range(size)]
    output = blank((sum(received), 2))
    dist.all_to_all_single(output, inputs[rank], received, sends[rank])
    same(output, torch.cat([inputs[r].split(sends[r])[rank] for r in range(size)]))


@case
def all_to_all_single_long_for_itself(rank: int, size: int) -> None:
    """What a rank keeps is known to itself alone, and says nothing of how others cut what they send."""
    sends = [[262_144 if r == to == 0 else 100_000 for to in range(size)] for r in range(size)]
    inputs = [value(r, (sum(sends[r]),), F32) for r in range(size)]
    received = [sends[r][rank] for r in range(size)]
    output = blank((sum(received),))
    dist.all_to_all_single(output, inputs[rank], received, sends[rank])
    same(output, torch.cat([inputs[r].split(sends[r])[rank] for r in range(size)]))


@case
def scatter_into_an_input(rank: int, size: int) -> None:
    """The root's output is the part that another rank gets, and then lies across two."""
    for root, shift in product(range(size), (0, 3)):
        parts = values(size, (60_000,), torch.int32)
        whole = torch.cat([*parts, blank((3,), torch.int32)])
        start = (root + 1) % size * 60_000 + shift
        output = whole[start : start + 60_000] if rank == root else blank((60_000,), torch.int32)
        inputs = list(whole.split(60_000)[:size]) if rank == root else None
        dist.scatter(output, inputs, root)
        same(output, parts[rank])


@case
def all_gather_from_anothers_part(rank: int, size: int) -> None:
    """The input is the part of the output that the next rank's goes to."""
    output = blank((size * 60_000,))
    mine = output.split(60_000)[(rank + 1) % size]
    mine.copy_(value(rank, (60_000,), F32))
    dist.all_gather_into_tensor(output, mine)
    same(output, torch.cat(values(size, (60_000,))))


@case
def reduce_scatter_in_place(rank: int, size: int) -> None:
    """Each part of the input in turn is the output, and what lies across two of them."""
    for op, start in product((dist.ReduceOp.SUM, dist._make_nccl_premul_sum(2.0)), range(0, size * 600, 300)):
        whole = values(size, (size * 600,))
        mine = torch.cat([whole[rank], blank((300,))])
        dist.reduce_scatter_tensor(mine[start : start + 600], mine[: size * 600], op)
        factor = 1 if op == dist.ReduceOp.SUM else 2
        same(mine[start : start + 600], reduced("sum", whole)[rank * 600 :][:600] * factor)


@case
def all_to_all_in_place(rank: int, size: int) -> None:
    for numel, dtype in product((5, 60_000), (F32, torch.int64)):
        parts = [value(rank, (numel,), dtype, salt=to) for to in range(size)]
        expected = [value(r, (numel,), dtype, salt=rank) for r in range(size)]
        whole = torch.cat(parts)
        dist.all_to_all(parts, parts)
        all_same(parts, expected)
        dist.all_to_all_single(whole, whole)
        same(whole, torch.cat(expected))


@case
def send_recv(rank: int, size: int) -> None:
    """Around the ring, two messages with their tags crossed."""
    if size == 1:
        return
    to, source = (rank + 1) % size, (rank - 1) % size
    sent = [dist.isend(value(rank, (10,), F32, salt=tag), to, tag=tag) for tag in (3, 4)]
    for tag in (4, 3):
        tensor = blank((10,))
        assert dist.recv(tensor, source, tag=tag) == source
        same(tensor, value(source, (10,), F32, salt=tag))
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
    received = blank((2000,))
    ops = [
        dist.P2POp(dist.isend, value(rank, (2000,), F32), (rank + 1) % size),
        dist.P2POp(dist.irecv, received, (rank - 1) % size),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    same(received, value((rank - 1) % size, (2000,), F32))


@case
def barriers(rank: int, size: int) -> None:
    dist.barrier()
    dist.barrier(async_op=True).wait()
    world().monitored_barrier(timedelta(seconds=30), wait_all_ranks=True)


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
    view.copy_(value(rank, (6, 4), F32))
    dist.all_reduce(view)
    same(view, total(size, (6, 4)))
    same(base[:, 1::2], torch.zeros(6, 4))
    turned = value(rank, (4, 6), F32).t()
    dist.broadcast(turned, size - 1)
    same(turned, value(size - 1, (4, 6), F32).t())
    image = value(rank, (2, 3, 4, 5), F32).to(memory_format=torch.channels_last)
    dist.all_reduce(image)
    same(image, total(size, (2, 3, 4, 5)))


@case
def parameters(rank: int, size: int) -> None:
    """Leaves that require a gradient are written like any tensor, also through a view's copy."""
    parameter = torch.nn.Parameter(value(rank, (4, 4), F32))
    dist.broadcast(parameter, 0)
    same(parameter.detach(), value(0, (4, 4), F32))
    turned = torch.nn.Parameter(value(rank, (4, 6), F32).t())
    dist.all_reduce(turned)
    same(turned.detach(), total(size, (4, 6)).t())


@case
def sub_groups(rank: int, size: int) -> None:
    """All groups of neighbours, at once and with other numbers than in the world."""
    pairs = [[r, (r + 1) % size] for r in range(size)] if size > 2 else [[1, 0]]
    groups = [dist.new_group(sorted(pair)) for pair in pairs]
    for pair, group in zip(pairs, groups, strict=True):
        if rank not in pair:
            continue
        tensor = value(rank, (40,), F32)
        dist.all_reduce(tensor, group=group)
        same(tensor, reduced("sum", [value(r, (40,), F32) for r in pair]))
        dist.broadcast(tensor, max(pair), group=group)
    for pair, group in zip(pairs, groups, strict=True):
        if rank in pair:
            dist.destroy_process_group(group)


@case
def sequence_numbers(rank: int, size: int) -> None:
    before = world()._get_sequence_number_for_group()
    dist.all_reduce(torch.ones(1))
    dist.barrier()
    assert world()._get_sequence_number_for_group() == before + 2


PLACES = [
    ("native", 2, "auto"), ("native", 3, "auto"), ("native", 4, "auto"), ("native", 3, "tcp"),
    ("python", 2, "auto"), ("python", 3, "tcp"), ("native", 3, "ltp"),
]  # fmt: skip


@pytest.fixture(scope="module", params=PLACES, ids=lambda place: "{}-{}-{}".format(*place))
def failures(request: pytest.FixtureRequest) -> list[dict[str, str]]:
    """Each rank's failures by case; one start of ranks for the whole table."""
    binding, size, transport = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TWEED_BINDING", binding)
        patch.setenv("TWEED_TRANSPORT", transport)
        patch.setenv("TWEED_WIRE_ONLY", "1" if transport == "ltp" else "0")
        return run_ranks(run_table, size, backend="tweed")


@pytest.mark.parametrize("name", TABLE)
def test_operation(name: str, failures: list[dict[str, str]]) -> None:
    check(name, failures)
