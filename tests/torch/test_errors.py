"""How things go wrong: each error by its class and words. Faults of ranks and links are in tests/faults.

And what goes well: a checkpoint that torch saves beside the training.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint

from tests.torch.test_operations import world
from tweed import errors
from tweed.errors import ShapeMismatch
from tweed.testbed import run_ranks
from tweed.torch import Options


@pytest.fixture(params=["native", "python"])
def binding(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TWEED_BINDING", request.param)
    return str(request.param)


def caught(action: Callable[[], object]) -> tuple[str, str]:
    """Class and text of what `action` raises; pickled errors of other processes would lose their class."""
    try:
        action()
    except Exception as error:  # noqa: BLE001 the test looks at the class
        return type(error).__name__, str(error)
    return "", ""


def waits_in_vain(rank: int, size: int) -> tuple[tuple[str, str], float]:
    tensor = torch.zeros(4)
    if rank == 1:
        dist.barrier()
        dist.send(torch.ones(4), 0)
        return ("", ""), 0.0
    work = dist.irecv(tensor, 1)
    error = caught(lambda: work.wait(timedelta(milliseconds=20)))
    dist.barrier()
    work.wait()
    return error, tensor.sum().item()


def test_a_wait_with_its_own_limit_can_be_repeated(binding: str) -> None:
    (kind, text), received = run_ranks(waits_in_vain, 2, backend="tweed")[0]
    assert kind == "DeadlineExceeded"
    assert "goes on" in text
    assert received == 4.0


def is_missing(rank: int, size: int) -> tuple[str, str]:
    limit = timedelta(milliseconds=200)
    error = caught(lambda: world().monitored_barrier(limit, True) if rank != 1 else None)
    dist.barrier()
    return error


def test_the_monitored_barrier_names_who_is_missing(binding: str) -> None:
    kind, text = run_ranks(is_missing, 3, backend="tweed")[0]
    assert kind == "DeadlineExceeded"
    assert "1 failed to pass monitoredBarrier in 200 ms" in text


def after_abort(rank: int, size: int) -> tuple[str, str]:
    """Rank 2 does not call, so the others wait until rank 0 gives up."""
    store = dist.distributed_c10d._get_default_store()
    work = dist.all_reduce(torch.ones(1), async_op=True) if rank < 2 else None
    if rank == 1:
        store.set("1 has called", "")
    if rank == 0:
        store.get("1 has called")
        world()._get_backend(torch.device("cpu")).abort()
    error = caught(work.wait) if work else ("", "")
    if rank == 2:
        store.get("1 is done")
    store.set(f"{rank} is done", "")
    if rank == 0:  # the store is in this process
        store.get("2 is done")
    return error


def test_abort_ends_what_is_under_way_everywhere(binding: str) -> None:
    kinds = [kind for kind, _ in run_ranks(after_abort, 3, backend="tweed")]
    assert kinds == ["Aborted", "Aborted", ""]


@pytest.fixture
def alone() -> Iterator[None]:
    """A group of one, in this process."""
    dist.init_process_group("tweed", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_misuse_is_a_usage_error(alone: None) -> None:
    tensor = torch.ones(2)
    for action, text in [
        (lambda: dist.all_gather([tensor, tensor], tensor), "one per rank"),
        (lambda: dist.all_gather([torch.ones(3)], tensor), "tensor 0 of the list has 3 elements.*all_to_all"),
        (lambda: dist.reduce_scatter_tensor(torch.ones(3), torch.ones(2)), "one part per rank"),
        (lambda: dist.all_to_all_single(torch.ones(3), torch.ones(3), [1], [3]), "Split sizes"),
        (lambda: dist.all_reduce(torch.ones(2, dtype=torch.float8_e4m3fn)), "cannot reduce Float8"),
        (lambda: world().broadcast([tensor, tensor]).wait(), "one tensor per process"),
    ]:
        with pytest.raises(errors.UsageError, match=text):
            action()


def test_impossible_options_are_refused_before_anything_starts() -> None:
    with pytest.raises(errors.UsageError, match="transport must be one of"):
        options = Options(transport="carrier pigeon")  # type: ignore[arg-type]
        dist.init_process_group("tweed", store=dist.HashStore(), rank=0, world_size=1, pg_options=options)


def trains_while_it_saves(rank: int, size: int, folder: Path) -> tuple[float, bool]:
    model = torch.nn.Linear(64, 64)
    dist.broadcast(model.weight.data, 0)
    saved = model.weight.detach().clone()
    group = dist.new_group(backend="tweed")
    saving = checkpoint.async_save({"model": model.state_dict()}, checkpoint_id=folder, process_group=group)
    total, done = torch.zeros(1), torch.zeros(1)
    while not done.item():
        dist.all_reduce(total.fill_(1))
        dist.all_reduce(done.fill_(saving.done()), op=dist.ReduceOp.MIN)
    saving.result()
    again = {"model": {name: torch.zeros_like(value) for name, value in model.state_dict().items()}}
    checkpoint.load(again, checkpoint_id=folder)
    return total.item(), torch.equal(again["model"]["weight"], saved)


def test_a_checkpoint_is_saved_beside_the_training_over_a_group_of_its_own(tmp_path: Path) -> None:
    assert run_ranks(trains_while_it_saves, 2, tmp_path / "saved", backend="tweed") == [(2.0, True)] * 2


def mixes_threads(rank: int, size: int) -> str:
    other = threading.Thread(target=lambda: dist.all_reduce(torch.ones(1)))
    other.start()
    other.join()
    try:
        if rank == 0:
            dist.all_reduce(torch.ones(1))
        else:
            dist.all_gather_into_tensor(torch.empty(size), torch.ones(1))
    except ShapeMismatch as error:
        return str(error)
    return ""


def test_a_disagreement_after_calls_of_two_threads_says_that_it_may_be_theirs() -> None:
    for text in run_ranks(mixes_threads, 2, backend="tweed"):
        assert "ranks disagree" in text
        assert "Several threads of this process have called on this group" in text
        assert "torch.distributed.new_group" in text


def leaves_blocks(rank: int, size: int) -> tuple[float, float, int]:
    """By an exception: one whose calls torch keeps in a list, and one whose calls begin at once."""
    state, manager = dist.distributed_c10d._world.pg_coalesce_state, dist.distributed_c10d._coalescing_manager
    with suppress(KeyboardInterrupt), manager():
        dist.all_reduce(torch.ones(1))
        raise KeyboardInterrupt
    with suppress(KeyboardInterrupt), manager(device=torch.device("cpu")):
        dist.broadcast(torch.ones(1), 0)
        raise KeyboardInterrupt
    tensor, block = torch.ones(4), torch.ones(4)
    dist.all_reduce(tensor)
    with manager():
        dist.all_reduce(block)
    return tensor.sum().item(), block.sum().item(), len(state)


def test_after_an_exception_within_a_coalescing_block_collectives_are_made(binding: str) -> None:
    assert run_ranks(leaves_blocks, 2, backend="tweed") == [(8.0, 8.0, 0)] * 2
