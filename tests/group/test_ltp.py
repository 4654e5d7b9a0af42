"""attach over LTP and with a server: live ranks, plain averages, and nothing destroyed by loss."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import tweed
from tweed.collective import Server
from tweed.compress import Direct, ErrorFeedback, ErrorReset, Identity, TopK
from tweed.errors import StrategyError, UsageError
from tweed.recipes import ltp
from tweed.strategy import Strategy
from tweed.testbed import Network, run_ranks
from tweed.transport import Ltp

NUMEL = 300_000
STEPS = 4


class Values(nn.Module):
    """A parameter whose gradient is what it is called with, and one that only some ranks use."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Parameter(torch.zeros(NUMEL))
        self.rare = nn.Parameter(torch.zeros(1000))

    def forward(self, value: float, rare: float) -> Tensor:
        used = (self.used * value).sum()
        return used + (self.rare * rare).sum() if rare else used


def train(rank: int, size: int, strategy: Strategy) -> dict[str, Any]:
    """Steps of size one with gradients that are whole numbers, so that sums have no rounding."""
    model = Values()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    run = tweed.attach(model, optimizer, strategy)
    if run.serves:
        run.serve(STEPS)
    else:
        for step in range(STEPS):
            model(rank + 2.0 * step, 2.0 * rank if step == 1 and rank == 1 else 0.0).backward()
            optimizer.step()
            optimizer.zero_grad()
    seen = {
        "applied": [-param.detach() for param in model.parameters()],
        "owed": owed(run.state_dict()),
        "shares": [told.shares() for told in run.delivered],
        "lost": run.stats.bytes_lost,
        "contributed": run.stats.bytes_contributed,
    }
    with run.averaged():
        seen["average"] = model.used.detach().clone()
    dist.barrier()
    run.detach()
    return seen


def owed(state: dict[str, Any]) -> list[Tensor]:
    """Per bucket what this rank contributed and nobody has got, as averages would have shown it."""
    if "buffers" not in state["exchange"]:
        return state["residuals"]  # type: ignore[no-any-return]
    buffers = state["exchange"]["buffers"]["buffers"]
    kept = [[*buffer["lost"].values(), *(buffer["state"] or {}).values()] for buffer in buffers]
    return [sum(tensors) / 2 if tensors else torch.zeros(1) for tensors in kept]


def contributed(workers: range) -> tuple[float, float]:
    """What all steps together apply if nothing is lost: per element of the two parameters."""
    used = sum(rank + 2.0 * step for rank in workers for step in range(STEPS)) / len(workers)
    return used, 2.0 / len(workers)


def check_equal(results: list[dict[str, Any]]) -> None:
    for result in results[1:]:
        assert all(map(torch.equal, result["applied"], results[0]["applied"]))


@pytest.mark.parametrize("strategy", [Strategy(transport="ltp"), Strategy(transport=Ltp(lossless=True))])
def test_without_loss_numbers_are_plain_averages(strategy: Strategy) -> None:
    results = run_ranks(train, 2, strategy, backend="tweed")
    check_equal(results)
    used, rare = contributed(range(2))
    assert results[0]["applied"][0].unique().tolist() == [used]
    assert results[0]["applied"][1].unique().tolist() == [rare]
    assert all(not owed.any() for result in results for owed in result["owed"])


@pytest.mark.parametrize("strategy", [Strategy(collective=Server(0)), ltp(server=0), ltp(server=2)], ids=str)
def test_a_server_has_the_workers_model(strategy: Strategy) -> None:
    assert strategy.collective is not None
    results = run_ranks(train, 3, strategy, backend="tweed")
    check_equal(results)
    workers = [rank for rank in range(3) if rank != strategy.collective.rank]
    used = sum(rank + 2.0 * step for rank in workers for step in range(STEPS)) / 2
    assert results[0]["applied"][0].unique().tolist() == [used]
    assert results[0]["applied"][1].unique().tolist() == [1.0]


ALONE, SERVED = ltp(fraction=0.5, slack_s=0.0), ltp(0, 0.5, 0.0)
LOSSY = {
    "direct": ALONE,
    "server": SERVED,
    "by ranges": replace(ALONE, compress=Identity(by_ranges=True)),
    "sums, server": replace(SERVED, compress=Direct(Identity())),
    "entries, server": replace(SERVED, compress=ErrorFeedback(TopK(0.6))),
    "entries": replace(ALONE, compress=ErrorFeedback(TopK(0.6))),
}


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize("strategy", LOSSY.values(), ids=LOSSY)
def test_what_was_lost_is_applied_later_or_owed(strategy: Strategy) -> None:
    size = 2 + (strategy.collective is not None)
    results = run_ranks(train, size, strategy, backend="tweed", network=Network(rate_bits=2e8, loss=0.1))
    check_equal(results)
    workers = range(size - 2, size)
    expected = torch.full((NUMEL,), contributed(workers)[0])
    left = sum(torch.cat(result["owed"]) for result in results if result["owed"])
    assert isinstance(left, Tensor)
    lost = sum(result["lost"] for result in results)
    print(f"{lost} of {sum(result['contributed'] for result in results)} bytes lost")
    rare, used = left[:1000], left[1000 : 1000 + NUMEL]  # buckets go backwards through the model
    assert torch.equal(results[0]["applied"][0] + used, expected)
    assert torch.equal(results[0]["applied"][1] + rare, torch.full((1000,), contributed(workers)[1]))
    assert lost > 0
    told = results[size - 2]["shares"]
    assert len(told) == STEPS and all(0.5 <= share <= 1 for shares in told for share in shares.values())


@pytest.mark.usefixtures("namespaces")
def test_models_that_differ_have_one_average_though_the_network_loses() -> None:
    eager = Ltp(fraction=0.5, slack_s=0.0)
    memory = ErrorReset(TopK(0.5), Identity(by_ranges=True), every=3)
    strategy = Strategy("step", compress=memory, transport=eager)
    results = run_ranks(train, 2, strategy, backend="tweed", network=Network(rate_bits=2e8, loss=0.1))
    assert sum(result["lost"] for result in results) > 0
    assert not torch.equal(results[0]["applied"][0], results[1]["applied"][0])
    used, _ = contributed(range(2))
    for result in results:  # the mean moves as if nothing were compressed or lost
        assert torch.equal(-result["average"], torch.full((NUMEL,), used))


def refuse(rank: int, size: int) -> None:
    model = Values()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with pytest.raises(StrategyError, match=r"Server\(rank=2\) needs rank 2 and at least one worker"):
        tweed.attach(model, optimizer, Strategy(collective=Server(2)))
    run = tweed.attach(model, optimizer)
    with pytest.raises(UsageError, match="this rank is not a server"):
        run.serve()
    assert run.delivered == ()


def test_a_server_that_is_not_there_is_refused() -> None:
    run_ranks(refuse, 2, backend="gloo")


def in_two_groups(rank: int, size: int) -> bool:
    """Some ranks attach with a transport of their own, then all do."""
    some = dist.new_group([0, 1])
    for group in ([some] if rank < 2 else []) + [None]:
        model = torch.nn.Linear(2, 1)
        tweed.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), ltp(), group=group).detach()
    return True


def test_a_group_of_some_ranks_leaves_groups_of_all_as_they_are() -> None:
    assert run_ranks(in_two_groups, 4, backend="tweed") == [True] * 4
