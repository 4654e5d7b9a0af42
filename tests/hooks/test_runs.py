"""Which run `attach` gives a rank, and what each answers that another role is asked for."""

from __future__ import annotations

import math
from typing import Any

import pytest

import tweed
from tests.hooks.nets import make
from tweed.collective import Hub
from tweed.errors import UsageError
from tweed.strategy import Strategy
from tweed.testbed import run_ranks

STRATEGIES: dict[str, Any] = {
    "gradients": "every_step",
    "models": "local_steps:2",
    "hub": Strategy(exchange="gradient", collective=Hub(0)),
}


def ask(rank: int, size: int, name: str) -> tuple[str, bool]:
    model, optimizer = make()
    run = tweed.attach(model, optimizer, STRATEGIES[name])
    assert isinstance(run, tweed.Run)
    answers = run.over, *run.verdicts, *run.contributions, *run.dropped
    run.report_loss(1.0)
    assert not any(answers) and run.epsilon() == math.inf and run.delivered == ()
    with pytest.raises(UsageError, match=r"belongs to cadence=ByShards"):
        run.shards()
    with run.no_sync():
        pass
    if run.serves:
        run.serve()
    else:
        with pytest.raises(UsageError, match=r"only where run\.serves is true"):
            run.serve()
    run.detach()
    return type(run).__name__, run.serves


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("gradients", [("GradientRun", False)] * 2),
        ("models", [("ModelRun", False)] * 2),
        ("hub", [("HubServerRun", True), ("HubWorkerRun", False)]),
    ],
)
def test_a_rank_gets_the_run_of_its_role_and_may_ask_for_what_others_have(
    name: str, runs: list[tuple[str, bool]]
) -> None:
    assert run_ranks(ask, 2, name, backend="tweed") == runs
