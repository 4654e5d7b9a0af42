"""How things go wrong: each error by its class and words, on every rank that it concerns."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from tweed import errors
from tweed.testbed import Failed, Ranks, Said, run_ranks, say
from tweed.torch import Options

BINDINGS = ["native", "python"]
Wait = Callable[[torch.Tensor], object]

WAITS: dict[str, Wait] = {
    "at_once": lambda tensor: dist.all_reduce(tensor),
    "work": lambda tensor: dist.all_reduce(tensor, async_op=True).wait(),
    "future": lambda tensor: dist.all_reduce(tensor, async_op=True).get_future().wait(),
}


@pytest.fixture(params=BINDINGS)
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


def dies_in_the_middle(rank: int, size: int, how: str) -> tuple[str, str]:
    dist.all_reduce(torch.ones(4))
    if rank == size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return caught(lambda: WAITS[how](torch.ones(1_000_000)))


@pytest.mark.parametrize("how", WAITS)
def test_a_killed_rank_is_named_on_every_survivor(how: str, binding: str) -> None:
    survivors = outcomes(dies_in_the_middle, 3, how)
    assert sorted(survivors) == [0, 1]
    for kind, text in survivors.values():
        assert "rank 2" in text
        assert "all_reduce" in text
        # The future of a Python group passes through torch.futures, which keeps the text alone.
        assert kind == "PeerLost" or (how == "future" and binding == "python" and "PeerLost" in text)


def outcomes(fn: Callable[..., object], size: int, *args: object) -> dict[int, tuple[str, str]]:
    """What each rank that lived to the end returned."""
    found = {}
    with Ranks(fn, size, *args, backend="tweed") as ranks:
        while ranks.running():
            for event in ranks.poll(30):
                if not isinstance(event, Said | Failed):
                    found[event.rank] = event.value
    return found


def dies_in_backward(rank: int, size: int) -> tuple[str, str]:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    loss = model(torch.ones(2, 4)).sum()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return caught(loss.backward)


def test_a_killed_rank_ends_the_backward_pass() -> None:
    kind, text = outcomes(dies_in_backward, 2)[0]
    assert kind == "PeerLost"
    assert "rank 1" in text


def disagrees_on_shape(rank: int, size: int) -> tuple[str, str]:
    return caught(lambda: dist.all_reduce(torch.ones(4 + rank, 2)))


def disagrees_on_dtype(rank: int, size: int) -> tuple[str, str]:
    return caught(lambda: dist.all_reduce(torch.ones(4).to([torch.float32, torch.int32][rank])))


def disagrees_on_operation(rank: int, size: int) -> tuple[str, str]:
    tensor = torch.ones(4)
    return caught(lambda: dist.all_reduce(tensor) if rank == 0 else dist.broadcast(tensor, 0))


@pytest.mark.parametrize(
    ("fn", "values"),
    [
        (disagrees_on_shape, ["[4, 2]", "[5, 2]"]),
        (disagrees_on_dtype, ["float32", "int32"]),
        (disagrees_on_operation, ["all_reduce", "broadcast"]),
    ],
)
def test_disagreement_names_each_ranks_value(
    fn: Callable[..., object], values: list[str], binding: str
) -> None:
    for kind, text in run_ranks(fn, 2, backend="tweed"):
        assert kind == "ShapeMismatch"
        assert all(value in text for value in values), text


def waits_for_ever(rank: int, size: int) -> str:
    if rank == 1:
        signal.pause()
    try:
        say("ready")
        dist.all_reduce(torch.ones(4))
    except KeyboardInterrupt:
        return "interrupted"
    return "ended"


def test_ctrl_c_works_during_a_wait(binding: str) -> None:
    with Ranks(waits_for_ever, 2, backend="tweed") as ranks:
        assert any(isinstance(event, Said) for event in ranks.poll(30))
        ranks.kill(0, signal.SIGINT)
        (event,) = ranks.poll(30)
        assert event.value == "interrupted"


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
    group = dist.group.WORLD
    assert group is not None
    action = (
        caught(lambda: group.monitored_barrier(timedelta(milliseconds=200), True)) if rank != 1 else ("", "")
    )
    dist.barrier()
    return action


def test_the_monitored_barrier_names_who_is_missing(binding: str) -> None:
    kind, text = run_ranks(is_missing, 3, backend="tweed")[0]
    assert kind == "DeadlineExceeded"
    assert "1 failed to pass monitoredBarrier in 200 ms" in text


def after_abort(rank: int, size: int) -> tuple[str, str]:
    """Rank 2 does not call, so the others wait until rank 0 gives up."""
    group, store = dist.group.WORLD, dist.distributed_c10d._get_default_store()
    assert group is not None
    work = dist.all_reduce(torch.ones(1), async_op=True) if rank < 2 else None
    if rank == 1:
        store.set("1 has called", "")
    if rank == 0:
        store.get("1 has called")
        group._get_backend(torch.device("cpu")).abort()
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
    group = dist.group.WORLD
    assert group is not None
    cases = [
        (lambda: dist.all_gather([tensor, tensor], tensor), "one per rank"),
        (lambda: dist.reduce_scatter_tensor(torch.ones(3), torch.ones(2)), "one part per rank"),
        (lambda: dist.all_to_all_single(torch.ones(3), torch.ones(3), [1], [3]), "Split sizes"),
        (lambda: dist.all_reduce(torch.ones(2, dtype=torch.float8_e4m3fn)), "cannot reduce Float8"),
        (lambda: group.broadcast([tensor, tensor]).wait(), "one tensor per process"),
    ]
    for action, text in cases:
        with pytest.raises(errors.UsageError, match=text):
            action()


def forks(rank: int, size: int) -> tuple[int, str]:
    """The child tells what it met through a pipe."""
    from tweed.torch.node import node

    read, write = os.pipe()
    if (child := os.fork()) == 0:
        text = caught(lambda: dist.all_reduce(torch.ones(1)))[0] + " " + caught(node)[0]
        os.write(write, text.encode())
        os._exit(0)
    os.waitpid(child, 0)
    return rank, os.read(read, 1000).decode()


def test_a_fork_after_the_start_is_a_clear_error_in_the_child(binding: str) -> None:
    for _, met in run_ranks(forks, 2, backend="tweed"):
        assert met == "ForkedProcess ForkedProcess"


def test_impossible_options_are_refused_before_anything_starts() -> None:
    with pytest.raises(errors.UsageError, match="transport must be one of"):
        dist.init_process_group(
            "tweed",
            store=dist.HashStore(),
            rank=0,
            world_size=1,
            pg_options=Options(transport="carrier pigeon"),
        )
