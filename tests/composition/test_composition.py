"""Every pair of parts that goes together trains live, to the model of the simulated run, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from tests.composition.parts import PAGE, Names, accepted, combine, covering, page
from tests.composition.ranks import STEPS, Matrix, Trained, loss, trains
from tweed.cadence import Ordered
from tweed.compress import Auto
from tweed.simulate.workers import Workers
from tweed.testbed import run_ranks

RANKS = 3
COMBINATIONS = dict(accepted())
CHOSEN = covering(COMBINATIONS)


def simulated(names: Names) -> list[Tensor]:
    """Each rank's model."""
    strategy = combine(names)
    assert strategy is not None
    workers = Workers(Matrix(), lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9), strategy, RANKS)
    for step in range(STEPS):
        workers.step(lambda rank, model, step=step: loss(rank, step, model))  # type: ignore[misc]
    return [worker.flat.values.view(48, 50) for worker in workers.all]


@pytest.fixture(scope="module")
def live() -> Iterator[dict[Names, list[Trained]]]:
    """By combination, what each rank has. Ranks share no memory, so that packets are packets."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TWEED_WIRE_ONLY", "1")
        by_rank = run_ranks(trains, RANKS, CHOSEN, backend="tweed")
    yield dict(zip(CHOSEN, (list(every) for every in zip(*by_rank, strict=True)), strict=True))


@pytest.mark.parametrize("names", CHOSEN, ids=", ".join)
def test_a_live_run_is_the_simulated_one(names: Names, live: dict[Names, list[Trained]]) -> None:
    strategy, ranks = COMBINATIONS[names], live[names]
    assert all(torch.equal(rank.average, ranks[0].average) for rank in ranks)
    assert ranks[0].average.isfinite().all()
    if isinstance(strategy.memory, Auto):
        return  # it goes by measured times
    if isinstance(strategy.cadence, Ordered):  # all are heard, whoever comes first
        heard = (names[0], "EveryStep", *names[2:])
        for rank, expected in zip(ranks, simulated(heard), strict=True):
            rounding = 0.05 if names[3] == "Half" else 1e-5  # there a sum is rounded to 16 bits, here none is
            torch.testing.assert_close(rank.own, expected, rtol=1e-5, atol=rounding)
        return
    for rank, expected in zip(ranks, simulated(names), strict=True):
        torch.testing.assert_close(rank.own, expected, rtol=0, atol=0)


def test_the_page_is_what_the_code_accepts() -> None:
    assert PAGE.read_text() == page(COMBINATIONS), "run python -m tests.composition.parts"
