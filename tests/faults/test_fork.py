"""What a forked child gets of the engine: copies of the memory that users hold, and nothing else."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import tweed
from tests.faults.ring import Outcome, caught, endings, hear_all
from tweed.testbed import Ranks, run_ranks, say
from tweed.torch import node

_PAGE_NUMEL = 1024  # of float32


class Child:
    """A fork that runs `action` and ends; a context manager. `text` is what `action` returned or raised."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._read, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                text = str(action())
            except BaseException as error:  # noqa: BLE001 the parent looks at it
                text = f"{type(error).__name__}: {error}"
            os.write(write, text.encode()[:4000])
            os._exit(0)
        os.close(write)

    def end(self) -> str:
        """Waits for the child. An empty text: it crashed."""
        with os.fdopen(self._read) as ending:
            text = ending.read()
        os.waitpid(self.pid, 0)
        return text


def frees(rank: int, size: int) -> tuple[str, float]:
    tensors = [tweed.empty(1_000_000).fill_(7)]
    return Child(tensors.clear).end(), tensors[0].sum().item()


def test_what_a_child_frees_stays_the_parents() -> None:
    assert run_ranks(frees, 1) == [("None", 7e6)]


def writes(rank: int, size: int, numel: int) -> tuple[str, list[float]]:
    """Parent and child write after the fork, the child first looks once the parent has written."""
    tensor = tweed.empty(numel)
    parts = tensor[0], tensor[_PAGE_NUMEL], tensor[-1]
    for part in parts:
        part.fill_(1)
    read, write = os.pipe()

    def look() -> list[float]:
        tensor[_PAGE_NUMEL].fill_(9)
        os.read(read, 1)
        return [part.item() for part in parts]

    child = Child(look)
    parts[0].fill_(5)
    os.write(write, b"!")
    return child.end(), [part.item() for part in parts]


def test_parent_and_child_do_not_see_what_the_other_writes() -> None:
    assert run_ranks(writes, 1, 1_000_000) == [("[1.0, 9.0, 1.0]", [5.0, 1.0, 1.0])]


def test_beyond_a_gigabyte_a_child_sees_what_the_parent_writes_and_never_the_other_way() -> None:
    assert run_ranks(writes, 1, 300_000_000) == [("[5.0, 9.0, 1.0]", [5.0, 1.0, 1.0])]


def lends(rank: int, size: int) -> tuple[str, float]:
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
    tensor = backend.allocate_tensor(1000, dtype=torch.float32, device=torch.device("cpu")).fill_(7)

    def write() -> float:
        before = tensor.mean().item()
        tensor.fill_(9)
        return before

    return Child(write).end(), tensor.mean().item()


def test_what_torch_allocates_by_the_backend_is_the_childs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWEED_BINDING", "native")
    assert run_ranks(lends, 2, backend="tweed") == [("7.0", 7.0)] * 2


def waits(rank: int, size: int) -> tuple[str, list[float]]:
    tensor = torch.zeros(4)
    if rank == 1:
        dist.barrier()
        dist.send(torch.full((4,), 5.0), 0)
    else:
        work = dist.irecv(tensor, 1)
        text = Child(lambda: work.wait(timedelta(seconds=20))).end()
        dist.barrier()
        work.wait()
    dist.all_reduce(tensor)  # what the child did has not disturbed the group
    return (text if rank == 0 else ""), tensor.tolist()


def test_a_wait_in_a_child_is_an_error_and_takes_nothing_from_the_parent(way: str) -> None:
    (text, received), (_, sent) = run_ranks(waits, 2, backend="tweed")
    assert text.startswith("ForkedProcess: ")
    assert received == sent == [5.0] * 4


def uses(rank: int, size: int) -> list[str]:
    pending = dist.irecv(torch.zeros(1), 1 - rank)
    actions: list[Callable[[], object]] = [
        lambda: dist.all_reduce(torch.ones(1)), dist.barrier, lambda: tweed.empty(4), node.node,
        pending.is_completed,
    ]  # fmt: skip
    texts = [Child(action).end() for action in actions]
    dist.send(torch.ones(1), 1 - rank)
    pending.wait()
    dist.all_reduce(torch.ones(1))  # the parent goes on
    return texts


def test_calls_in_a_child_are_errors_by_name(way: str) -> None:
    for *errors, completed in run_ranks(uses, 2, backend="tweed"):
        assert all(text.startswith("ForkedProcess: ") for text in errors)
        assert "is a fork of process" in errors[0] and "call init_process_group in the child" in errors[0]
        assert completed == "True"  # it has ended for the child, by that error


def leaves(rank: int, size: int) -> str:
    """Its children drop all that they can, then collect, and end as Python does."""
    held, pending = [tweed.empty(4)], [dist.irecv(torch.zeros(1), 1 - rank)]

    def drop() -> str:
        held.clear()
        pending.clear()
        dist.destroy_process_group()
        node.leave()
        node._nodes.clear()
        gc.collect()
        return "clean"

    text = Child(drop).end()
    dist.send(torch.ones(1), 1 - rank)
    pending[0].wait()
    return text


def test_a_child_lets_go_of_everything_quietly(way: str) -> None:
    assert run_ranks(leaves, 2, backend="tweed") == ["clean"] * 2


def is_killed_with_a_child(rank: int, size: int) -> Outcome | None:
    never, _write = os.pipe()
    dist.barrier()
    if rank == 1:
        Child(lambda: os.read(never, 1))  # it lives as long as this process's group of processes
        say("forked")
        dist.recv(torch.zeros(1), 0)  # never sent
    say("ready")
    return caught(lambda: dist.recv(torch.zeros(1), 1))


def test_a_rank_is_lost_when_it_dies_although_its_child_lives(way: str) -> None:
    with Ranks(is_killed_with_a_child, 2, backend="tweed") as ranks:
        hear_all(ranks)
        group = os.getpgid(ranks.pid(1))
        try:
            ranks.kill(1)
            endings(ranks, 1)[0].must_be("PeerLost")
        finally:
            os.killpg(group, signal.SIGKILL)


class Collecting(torch.utils.data.Dataset[torch.Tensor]):
    """Each access runs Python's collector, as happens by itself in any worker that makes enough objects."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        gc.collect()
        return torch.tensor(float(index))


def loads(rank: int, size: int) -> float:
    class Holder:
        me: object
        tensor: torch.Tensor

    gc.disable()
    old = Holder()
    old.me, old.tensor = old, tweed.empty(1_000_000).fill_(1)
    del old  # garbage that nobody has collected yet
    loader = torch.utils.data.DataLoader(
        Collecting(), num_workers=1, prefetch_factor=1, multiprocessing_context="fork"
    )
    batches = iter(loader)  # forks here
    gc.collect()
    bucket = tweed.empty(1_000_000).fill_(3)  # takes the same block again
    for _ in batches:
        pass
    return bucket.sum().item()


def test_workers_of_a_loader_leave_the_parents_tensors_alone() -> None:
    assert run_ranks(loads, 1) == [3_000_000.0]
