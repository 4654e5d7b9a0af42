"""What goes wrong in silence elsewhere: other optimizers, accumulation, a run that nobody finishes."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import tweed
from tests.hooks.nets import equal, params, step
from tweed.errors import PeerLost, UsageError
from tweed.testbed import run_ranks

ALONE = "run.finish()"


class Heard(logging.Handler):
    """What the log of tweed was given."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        logging.getLogger("tweed").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def count(self, words: str) -> int:
        return sum(words in line for line in self.lines)


def two() -> tuple[nn.Sequential, list[torch.optim.Optimizer]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    return model, [torch.optim.SGD(model[0].parameters(), 0.1), torch.optim.AdamW(model[1].parameters())]


def refuses_other_optimizers(rank: int, size: int) -> None:
    model, (first, second) = two()
    run = tweed.attach(model, first, "local_steps:2")
    model(torch.ones(2, 3)).sum().backward()
    with pytest.raises(
        UsageError, match=r"AdamW.step\(\) would change '1.weight' .* another optimizer \(SGD\)"
    ):
        second.step()
    other = nn.Linear(2, 2)
    torch.optim.SGD(other.parameters()).step()
    first.step()
    run.detach()
    second.step()


def train(model: nn.Module, optimizers: list[torch.optim.Optimizer], data: list[Tensor]) -> None:
    for x in data:
        model(x).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


def steps_several_optimizers(rank: int, size: int) -> None:
    """As one process over all data does."""
    data = torch.randn(size, 3, 6, 3, generator=torch.Generator().manual_seed(1))
    model, optimizers = two()
    run = tweed.attach(model, optimizers)
    train(model, optimizers, list(data[rank]))
    true, alone = two()
    train(true, alone, [torch.cat(list(data[:, number])) for number in range(3)])
    for mine, expected in zip(params(model), params(true), strict=True):
        torch.testing.assert_close(mine, expected)
    assert (run.stats.steps, run.stats.exchanges) == (3, 3)
    run.detach()

    model, optimizers = two()
    run = tweed.attach(model, optimizers, "local_steps:2")
    model(torch.ones(2, 3)).sum().backward()
    for number in (0, 1, 1, 0, 1):  # a gradient scaler skips a step of the first
        optimizers[number].step()
    assert run.stats.steps == 2
    run.detach()


def says_once_that_each_pass_is_exchanged(rank: int, size: int) -> None:
    heard, (model, (optimizer, _)) = Heard(), two()
    run = tweed.attach(model, optimizer)
    for _ in range(2):
        for _ in range(3):
            model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
    assert heard.count("run.no_sync()") == (rank == 0)
    assert run.stats.exchanges == 6
    with run.no_sync():
        model(torch.ones(2, 3)).sum().backward()
    assert run.stats.exchanges == 6
    run.detach()


def says_that_a_run_was_not_finished(rank: int, size: int) -> None:
    def ended(finish: Callable[[tweed.Run], None], steps: int = 3) -> int:
        gc.collect()  # runs before this one have said what they have to say
        heard, (model, (optimizer, _)) = Heard(), two()
        run = tweed.attach(model, optimizer, "local_steps:2")
        for number in range(steps):
            step(model, optimizer, rank, number)
        finish(run)
        run.detach()
        del run, model, optimizer
        gc.collect()
        return heard.count(ALONE)

    assert ended(lambda run: None) == (rank == 0)
    assert ended(lambda run: None, steps=4) == 0
    assert ended(lambda run: run.finish()) == 0


def ends_with_one_model(rank: int, size: int) -> None:
    model, (optimizer, _) = two()
    with tweed.attach(model, optimizer, "local_steps:8") as run:
        step(model, optimizer, rank, 0)
        assert run.stats.exchanges == 0
    both = [torch.empty_like(model[0].weight) for _ in range(size)]
    dist.all_gather(both, model[0].weight.detach())
    assert equal(both[:1], both[1:])
    with pytest.raises(KeyError), tweed.attach(model, optimizer, "local_steps:8") as run:
        step(model, optimizer, rank, 1)
        raise KeyError
    assert run.stats.exchanges == 0
    tweed.attach(model, optimizer).detach()


ALL = (
    *(refuses_other_optimizers, steps_several_optimizers, says_once_that_each_pass_is_exchanged),
    *(says_that_a_run_was_not_finished, ends_with_one_model),
)


def all_of_them(rank: int, size: int) -> None:
    for one in ALL:
        one(rank, size)


def test_what_goes_wrong_in_silence_is_said() -> None:
    run_ranks(all_of_them, 2, backend="gloo")


def ends_early(rank: int, size: int) -> str:
    """Rank 1 has fewer batches than the others."""
    model, (optimizer, _) = two()
    run = tweed.attach(model, optimizer)
    try:
        for number in range(2 if rank == 1 else 4):
            step(model, optimizer, rank, number)
    except PeerLost as error:
        return str(error)
    finally:
        run.detach()
        dist.destroy_process_group()
    return ""


def test_a_rank_that_ends_its_loop_before_the_others_is_named_by_them() -> None:
    first, early, last = run_ranks(ends_early, 3, backend="tweed")
    assert early == ""
    for words in (first, last):
        assert "rank 1 on" in words and "has left the group before all_reduce" in words
