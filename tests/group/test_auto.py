"""`compress="auto"` between real ranks: all go the same choice, nothing is forgotten, off is off."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn

import tweed
from tests.hooks.nets import equal, params
from tweed.compress import Auto, Half, Identity, TopK
from tweed.compress.autotuner import Phase, Reason, Record, Timing
from tweed.exchange import autotuner
from tweed.strategy import Strategy
from tweed.testbed import run_ranks

STEPS = 40


@dataclass
class Scripted:
    """An autotuner whose decisions are known beforehand: a choice per exchange."""

    choices: list[int]
    timings: list[Timing] = field(default_factory=list)

    def start(self) -> Record:
        choice = self.choices[min(len(self.timings), len(self.choices) - 1)]
        return Record(Phase(choice, 1, Reason.DOES_NOT_PAY if choice == 0 else Reason.QUICKEST))

    def next(self, record: Record, timings: list[Timing]) -> Record:
        self.timings += timings
        return self.start()

    def gain(self, record: Record) -> None:
        return None


def trained(rank: int, size: int, compress: Any, exchange: str, choices: list[int] | None) -> dict[str, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    if choices is not None:
        scripted = Scripted(choices)
        autotuner.Auto.autotuner = lambda self, specs, ranks: scripted  # type: ignore[assignment, method-assign]
    run = tweed.attach(model, optimizer, Strategy(exchange=exchange, compress=compress))  # type: ignore[arg-type]
    chance = torch.Generator().manual_seed(rank)
    for _ in range(STEPS):
        x = torch.randn(16, 20, generator=chance)
        (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    run.finish()
    counted = {name: getattr(run.stats, name) for name in ("chosen", "gain", "exchanges")}
    return {"params": params(model), **counted}


@pytest.mark.parametrize("exchange", ["gradient", "step"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_all_ranks_choose_alike_and_have_one_model(exchange: str, size: int) -> None:
    first, *others = run_ranks(trained, size, "auto", exchange, None, backend="tweed")
    assert first["chosen"] is not None and first["gain"] > 0
    for other in others:
        assert (other["chosen"], other["gain"]) == (first["chosen"], first["gain"])
        assert equal(first["params"], other["params"])


def test_turned_off_it_is_the_plain_exchange() -> None:
    [plain, _] = run_ranks(trained, 2, None, "gradient", None, backend="tweed")
    [off, _] = run_ranks(trained, 2, Auto(), "gradient", [0], backend="tweed")
    assert equal(plain["params"], off["params"])
    assert off["exchanges"] == plain["exchanges"]


@pytest.mark.parametrize("exchange", ["gradient", "step"])
def test_what_was_owed_goes_when_it_is_turned_off(exchange: str) -> None:
    """Plain gradient descent moves by the sum of all that is said: late words change little of where it ends,
    forgotten ones much."""
    choices = [2] * 10 + [0] * 5 + [1, 2, 2] + [0]
    [plain, _] = run_ranks(trained, 2, None, exchange, None, backend="tweed")
    by_rank = run_ranks(trained, 2, Auto((Half(), TopK(0.1))), exchange, choices, backend="tweed")
    assert equal(by_rank[0]["params"], by_rank[1]["params"])
    mine, theirs = (nn.utils.parameters_to_vector(one["params"]) for one in (by_rank[0], plain))
    assert float((mine - theirs).norm()) < 0.1 * float(theirs.norm())
    assert by_rank[0]["chosen"] == repr(Identity())
