"""Live members that add up what others send: threads of one process over loopback, and ranks of a group.

The plan is made by the test: it sends whatever it can by way of members that offered that.
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import tweed
from tests.hooks.nets import equal, make, params
from tests.hub.plans import Plans
from tests.hub.test_serve import PATIENCE_S, members, opened, refused
from tests.hub.test_training import alone, loss, ready, total_loss
from tweed import _core
from tweed.aggregate import All, Cache
from tweed.collective import Hub
from tweed.compress import Direct, ErrorFeedback, Quantise, TopK
from tweed.errors import StrategyError, UsageError
from tweed.hub.aggregator.service import Service
from tweed.hub.machine import aggregator
from tweed.hub.machine.grouping import Group
from tweed.hub.replay import replay
from tweed.order import FirstIn
from tweed.strategy import Strategy
from tweed.testbed import Ranks, run_ranks

MEMBERS, STEPS = 3, 8
IN_STEP = Strategy(collective=Hub(0, when=All(), aggregators=2), order=FirstIn(MEMBERS))
ONE_BY_ONE = Strategy(collective=Hub(0, aggregators=1), order=FirstIn(MEMBERS))
LOOPBACK = "127.0.0.1:0"


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> Plans:
    monkeypatch.setattr("tweed.hub.keyed.hub_links._PATIENCE_S", 2.0)
    found = Plans()
    found.put(monkeypatch.setattr)
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
        given = {"aggregator": True} if number < able else {}
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
def test_what_is_compressed_is_added_up_as_what_it_stands_for(
    plans: Plans, strategy: Strategy, tmp_path: Path
) -> None:
    """And the hub's log has all of it: it replays bit for bit."""
    run, commits = opened(strategy, fewest=MEMBERS), []
    before = total_loss(run._model, MEMBERS + 1)
    with members(
        *(
            lambda n=number: train(run.address, n, strategy, 10**6, aggregator=LOOPBACK)
            for number in range(MEMBERS)
        )
    ) as found:
        log, after = tmp_path / "a.log", lambda version: commits.append(run.contributions)
        run.serve(commits=12, after=after, log=log)
    run.detach()
    assert all(one.result(PATIENCE_S)["over"] for one in found)
    counted_once(commits)
    model, _ = make(9)
    again = replay(log, model, torch.optim.SGD(model.parameters(), lr=0.02), strategy)
    assert equal(params(model), params(run._model)) and again.checked == 12
    assert [one.contributions for one in again.commits] == commits
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


def counts_all(commits: Sequence[Sequence[Any]], some: Iterable[int]) -> None:
    """Of these members each contribution counts, in order and once."""
    found = counted_once(commits)
    for member in some:
        numbers = [number for one, number in found if one == member]
        assert numbers == list(range(1, len(numbers) + 1)), f"member {member}: {numbers}"


def in_process(rank: int, size: int, address: str, strategy: Strategy) -> bool:
    """A member; the first one is an aggregator."""
    given = {"aggregator": LOOPBACK} if rank == 0 else {}
    return bool(train(address, rank, strategy, 10**6, **given)["over"])


def test_an_aggregator_is_killed_in_the_middle_of_a_group(plans: Plans) -> None:
    run, commits = opened(ONE_BY_ONE, fewest=MEMBERS), []
    with Ranks(in_process, MEMBERS, run.address, ONE_BY_ONE) as ranks:
        plan, killed = plans.plan, []

        def kill(*given: Any) -> tuple[Group, ...]:
            found = plan(*given)
            if len(plans.grouped) >= 5 and not killed:
                killed.append(found[0].aggregator)
                ranks.kill(0, signal.SIGKILL)
            return found

        plans.plan = kill  # type: ignore[method-assign]
        run.serve(commits=100, after=lambda version: commits.append(run.contributions))
        run.detach()
    assert killed and run.members == {}
    counts_all(commits, set(range(MEMBERS)) - set(killed))
    last = {one.member for one in commits[-1]}
    assert not last & set(killed)


def test_a_payload_that_never_comes_holds_up_nobody_for_long(
    plans: Plans, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first member that wants to send to an aggregator is not let; then the hub asks for it directly."""
    strategy = Strategy(collective=Hub(0, when=All(), aggregators=1, payload_s=0.3), order=FirstIn(MEMBERS))
    run, commits, held = opened(strategy, fewest=MEMBERS), [], []
    let = Service._let_send

    def hold(service: Service, link: int, caller: Any) -> None:
        if caller.offered is not None and not held:
            held.append(caller)
        if caller not in held:
            let(service, link, caller)

    monkeypatch.setattr(Service, "_let_send", hold)
    with members(
        *(lambda n=number: train(run.address, n, strategy, aggregator=n == 0) for number in range(MEMBERS))
    ):
        run.serve(commits=STEPS, after=lambda version: commits.append(run.contributions))
    run.detach()
    assert held
    counts_all(commits, range(MEMBERS))
    for mine, true in zip(params(run._model), alone(), strict=True):
        torch.testing.assert_close(mine, true)


def test_an_aggregator_that_adds_up_wrongly_is_named_and_its_members_contributions_count(
    plans: Plans, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def false(*args: Any) -> Any:
        found = honest(*args)
        return replace(found, value=1000 * found.value)

    honest = aggregator._sum
    monkeypatch.setattr(aggregator, "_sum", false)
    run, commits = opened(IN_STEP, fewest=MEMBERS), []
    with members(*(lambda n=number: train(run.address, n, aggregator=n == 0) for number in range(MEMBERS))):
        run.serve(commits=STEPS, after=lambda version: commits.append(run.contributions))
    run.detach()
    counts_all(commits, range(MEMBERS))
    for mine, true in zip(params(run._model), alone(), strict=True):
        torch.testing.assert_close(mine, true)
    said = [one.getMessage() for one in caplog.records if "adds up no more" in one.getMessage()]
    assert len(said) == 1


@pytest.mark.parametrize(
    ("there", "why"),
    [
        ("nobody", "refused"),
        ("somebody else", "not the one that was given"),
        ("somebody silent", "not answered"),
    ],
)
def test_who_is_not_where_an_aggregator_says_is_named_and_left_alone(
    plans: Plans, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, there: str, why: str
) -> None:
    """It says a place where nobody listens, another process that has the secret, or one that is silent."""
    false, silent = _core.HubLinks(), socket.create_server(("127.0.0.1", 0))
    port = silent.getsockname()[1]
    places = {"somebody else": false.listen(LOOPBACK), "somebody silent": f"127.0.0.1:{port}"}
    place = places.get(there, "127.0.0.1:1")
    monkeypatch.setattr(
        "tweed.hub.aggregator.link.AggregatorLink._greeting",
        lambda self: {**super(type(self), self)._greeting(), "aggregator": place},
    )
    run, commits = opened(IN_STEP, fewest=MEMBERS), []
    with members(*(lambda n=number: train(run.address, n, aggregator=n == 0) for number in range(MEMBERS))):
        run.serve(commits=STEPS, after=lambda version: commits.append(run.contributions))
    run.detach()
    false.close()
    silent.close()
    counts_all(commits, range(MEMBERS))
    for mine, true in zip(params(run._model), alone(), strict=True):
        torch.testing.assert_close(mine, true)
    said = [one.getMessage() for one in caplog.records if "cannot be reached" in one.getMessage()]
    assert said and place in said[0] and why in said[0]


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"aggregator": "0.0.0.0:0"}, UsageError, "the address by which other members"),
        (
            {"aggregator": LOOPBACK, "strategy": Strategy(collective=Hub(0))},
            StrategyError,
            "has no aggregators",
        ),
        ({"aggregator": "192.0.2.1:0"}, UsageError, "TWEED_SECRET"),
    ],
)
def test_what_cannot_be_an_aggregator_is_said(given: dict[str, Any], error: Any, text: str) -> None:
    refused(lambda: train("127.0.0.1:1", 0, **given), error, text)
    refused(lambda: tweed.attach(*make(0), IN_STEP, aggregator=LOOPBACK), UsageError, "TWEED_HOST")


def in_group(rank: int, size: int, strategy: Strategy) -> tuple[list[Tensor], int, list[int]]:
    plans = Plans()
    plans.put()
    model, optimizer = ready(strategy, rank)
    run, senders = tweed.attach(model, optimizer, strategy), set[int]()
    if run.serves:
        run.serve(after=lambda version: senders.update(one.member for one in run.contributions))
    else:
        for number in range(STEPS):
            loss(model, rank, number).backward()
            optimizer.step()
            optimizer.zero_grad()
    run.detach()
    left = [one.name for one in threading.enumerate() if one.name.startswith("tweed-aggregator")]
    assert not left
    return params(model), sum(plans.grouped), sorted(senders)


def test_ranks_of_a_group_add_up_for_each_other() -> None:
    hub, *workers = run_ranks(in_group, MEMBERS + 1, IN_STEP, backend="tweed")
    for mine, true in zip(hub[0], alone(), strict=True):
        torch.testing.assert_close(mine, true)
    assert all(equal(worker[0], hub[0]) for worker in workers)
    assert hub[1] > 0 and hub[2] == [1, 2, 3]


def test_a_strategy_with_aggregators_names_what_does_not_go_with_them() -> None:
    with pytest.raises(StrategyError, match="sealed TCP streams"):
        Strategy(collective=Hub(0, aggregators=1), transport="ltp")
