"""Live members that add up what others send: threads of one process over loopback, and ranks of a group.

Rates over loopback say nothing, so here the plan is made by the test: it sends whatever it can by way of
members that offered that.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import tweed
from tests.attach.nets import equal, make, params
from tests.attach.test_hub import alone, loss, ready, total_loss
from tests.server.test_serve import PATIENCE_S, members, opened, refused
from tweed.aggregate import All, Cache
from tweed.collective import Hub
from tweed.compress import Direct, ErrorFeedback, Quantise, TopK
from tweed.errors import StrategyError, UsageError
from tweed.exchange.hub.gathering import Gathering
from tweed.exchange.hub.live_hub import HubServer
from tweed.exchange.hub.planning import Group
from tweed.exchange.hub.service import Service
from tweed.order import FirstIn
from tweed.strategy import Strategy
from tweed.testbed import Ranks, run_ranks

MEMBERS, STEPS = 3, 8
IN_STEP = Strategy(collective=Hub(0, when=All(), aggregators=2), order=FirstIn(MEMBERS))
LOOPBACK = "127.0.0.1:0"


class Plans:
    """In the place of measured ones: all that is pending goes via who offered it, and models come from them."""

    def __init__(self) -> None:
        self.grouped: list[int] = []  # contributions, by group
        self.lent = 0

    def plan(
        self, gathering: Gathering, pending: Sequence[Any], idle: Iterable[int], now: float
    ) -> tuple[Group, ...]:
        free = [*gathering._free(idle, now)]
        if not free:
            return (Group(None, 0, len(pending)),)
        self.grouped.append(len(pending))
        return (Group(free[0], 0, len(pending)),)

    def holders(self, gathering: Gathering, some: Sequence[int], now: float) -> dict[int, int]:
        free = [one for one in gathering._free(some, now) if one in some]
        self.lent += len(some) - 1 if free else 0
        return {one: free[0] for one in some if one != free[0]} if free else {}

    def put(self) -> None:
        Gathering.plan = lambda one, *given: self.plan(one, *given)  # type: ignore[method-assign]
        Gathering.holders = lambda one, *given: self.holders(one, *given)  # type: ignore[method-assign]


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> Plans:
    monkeypatch.setattr("tweed.exchange.hub.keyed_links._PATIENCE_S", 2.0)
    monkeypatch.setattr(Gathering, "plan", Gathering.plan)  # restored at the end
    monkeypatch.setattr(Gathering, "holders", Gathering.holders)
    found = Plans()
    found.put()
    return found


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    assert not [one for one in threading.enumerate() if one.name == "tweed-aggregator"]


def train(
    address: str, number: int, strategy: Strategy = IN_STEP, steps: int = STEPS, bad: int = -1, **given: Any
) -> dict[str, Any]:
    """Batches as those of the ranks 1, 2 and 3; the gradient of step `bad` is not finite."""
    model, _ = make(7)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    run = tweed.attach(model, optimizer, strategy, hub=address, **given)
    done = 0
    while not run.over and done < steps:
        (loss(model, number + 1, done) * (float("nan") if done == bad else 1)).backward()
        optimizer.step()
        optimizer.zero_grad()
        done += 1
    over = run.over
    run.detach()
    return {"params": params(model), "over": over, "steps": done}


def counted_once(commits: Sequence[Sequence[Any]]) -> list[tuple[int, int]]:
    found = [(one.member, one.number) for commit in commits for one in commit]
    assert len(set(found)) == len(found), "a contribution counts twice"
    return found


@pytest.mark.parametrize("able", [1, 2])
def test_in_step_it_is_the_numbers_of_one_process_to_rounding(plans: Plans, able: int) -> None:
    """The order within a sum is that of grants, so association differs from run to run."""
    run, commits = opened(IN_STEP, fewest=MEMBERS), []

    def member(number: int) -> Callable[[], Any]:
        given = {"aggregator": LOOPBACK} if number < able else {}
        return lambda: train(run.address, number, **given)

    with members(*(member(number) for number in range(MEMBERS))) as found:
        run.serve(commits=STEPS, after=lambda version: commits.append(run.contributions))
    run.detach()
    for mine, true in zip(params(run._model), alone(), strict=True):
        torch.testing.assert_close(mine, true)
    for one in found:
        assert equal(one.result(PATIENCE_S)["params"], params(run._model))
    assert len(counted_once(commits)) == MEMBERS * STEPS
    assert sum(plans.grouped) > 0 and plans.lent > 0


@pytest.mark.parametrize(
    "strategy",
    [
        Strategy(compress=Direct(Quantise(8)), collective=Hub(0, aggregators=1), order=FirstIn(MEMBERS)),
        Strategy(
            "difference",
            compress=ErrorFeedback(TopK(0.2)),
            collective=Hub(0, when=Cache(2), aggregators=2, model=Quantise(8)),
        ),
        Strategy("model", collective=Hub(0, when=All(), aggregators=1)),
    ],
    ids=["8 bits, each", "sparse differences, both ways", "models"],
)
def test_what_is_compressed_is_added_up_as_what_it_stands_for(plans: Plans, strategy: Strategy) -> None:
    run, commits = opened(strategy, fewest=MEMBERS), []
    before = total_loss(run._model, MEMBERS + 1)
    with members(
        *(
            lambda n=number: train(run.address, n, strategy, 10**6, aggregator=LOOPBACK)
            for number in range(MEMBERS)
        )
    ) as found:
        run.serve(commits=12, after=lambda version: commits.append(run.contributions))
    run.detach()
    assert all(one.result(PATIENCE_S)["over"] for one in found)
    counted_once(commits)
    assert sum(plans.grouped) > 0 and total_loss(run._model, MEMBERS + 1) < before


def test_what_is_not_finite_is_left_out_of_a_sum_with_a_verdict(plans: Plans) -> None:
    run, commits = opened(IN_STEP, fewest=MEMBERS), []
    with members(
        *(
            lambda n=number: train(run.address, n, bad=3 if n == 2 else -1, aggregator=LOOPBACK)
            for number in range(MEMBERS)
        )
    ):
        run.serve(commits=STEPS, after=lambda version: commits.append(run.contributions))
    run.detach()
    assert all(value.isfinite().all() for value in params(run._model))
    weights = [sorted(one.weight for one in commit) for commit in commits]
    assert [commit[0] == 0.0 for commit in weights] == [step == 3 for step in range(STEPS)]
