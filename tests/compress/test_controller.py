"""A controlled threshold sends what was asked for, whatever the values do."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import tweed.compress.threshold as module
from tests.compress.table import Encoder, gaussian
from tweed.compress import Entries, Spec, Threshold
from tweed.compress.controller import CAP, TINY, ThresholdController

SPEC = Spec(((2000,), (300,), (40,)))
DENSITY = 0.02
ASKED = DENSITY * SPEC.numel

#: What a turn's values are, of 2,340 Gaussian ones.
KINDS = {
    "gaussian": lambda x: x,
    "heavy": lambda x: x**5,
    "large": lambda x: x * 1e30,
    "small": lambda x: x * 1e-30,
    "denormal": lambda x: x * 1e-41,
    "zeros": lambda x: x * 0,
    "equal": torch.ones_like,
    "signs": lambda x: x.sign(),
    "few": lambda x: x * (x > 2.2),
}


def counts(encoder: Encoder) -> list[int]:
    assert isinstance(encoder.packet, Entries)
    ends = torch.tensor(SPEC.sizes).cumsum(0)
    return torch.bincount(torch.bucketize(encoder.packet.indices, ends, right=True), minlength=3).tolist()


@given(kinds=st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=30), feedback=st.booleans())
def test_no_turn_sends_more_than_its_budget_and_none_less_than_most_of_it(
    kinds: list[str], feedback: bool
) -> None:
    encoder, error = Encoder(Threshold(DENSITY, dense_below=0), SPEC), torch.zeros(SPEC.numel)
    total = [0, 0, 0]
    for step, kind in enumerate(kinds):
        value = KINDS[kind](gaussian(SPEC, step))
        whole = value + error if feedback else value
        budgets = [
            controller.budget(DENSITY * size)
            for controller, size in zip(encoder.state.controllers, SPEC.sizes, strict=True)
        ]
        sent = encoder.encode(value, error if feedback else None)
        if feedback:
            assert torch.equal(sent + error, whole)
        total = [before + now for before, now in zip(total, counts(encoder), strict=True)]
        for part, budget, count, so_far, size in zip(
            whole.split(SPEC.sizes), budgets, counts(encoder), total, SPEC.sizes, strict=True
        ):
            assert math.floor(DENSITY * size) <= budget <= max(CAP * DENSITY * size, DENSITY * size + 1)
            assert min(math.ceil(budget / CAP), int(part.count_nonzero())) <= count <= budget
            assert so_far <= DENSITY * size * (step + 1) + 1e-6


@pytest.mark.parametrize("kind", ["gaussian", "heavy", "large", "denormal"])
def test_on_average_what_was_asked_for_is_sent(kind: str) -> None:
    encoder, error = Encoder(Threshold(DENSITY, dense_below=0), SPEC), torch.zeros(SPEC.numel)
    shares = []
    for step in range(100):
        encoder.encode(KINDS[kind](gaussian(SPEC, step)), error)
        shares.append(sum(counts(encoder)) / ASKED)
    assert all(1 / CAP <= share <= CAP for share in shares)
    assert sum(shares) / len(shares) == pytest.approx(1, abs=0.01)


def test_what_it_sends_are_the_largest_values() -> None:
    encoder = Encoder(Threshold(DENSITY, dense_below=0), SPEC)
    for step in range(10):
        value = gaussian(SPEC, step) * 3**step
        sent = encoder.encode(value)
        for mine, whole in zip(sent.split(SPEC.sizes), value.split(SPEC.sizes), strict=True):
            count = int(mine.count_nonzero())
            assert float(mine.abs().sum()) == pytest.approx(float(whole.abs().topk(count).values.sum()))


def test_searches_among_all_values_are_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[int] = []
    search = module._found_anew

    def counted(*given: Tensor) -> tuple[Tensor, Tensor]:
        searches.append(1)
        return search(*given)

    monkeypatch.setattr(module, "_found_anew", counted)
    spec = Spec(((20_000,),))
    encoder, error = Encoder(Threshold(0.01), spec), torch.zeros(spec.numel)
    sizes = torch.randn(200, generator=torch.Generator().manual_seed(1)).mul(0.3).exp()
    for step in range(200):  # gradients whose length comes and goes, as those of small batches
        encoder.encode(gaussian(spec, step) * sizes[step], error)
    assert len(searches) <= 10


def test_small_tensors_send_one_value_every_few_turns() -> None:
    encoder, error = Encoder(Threshold(0.03, dense_below=0), Spec(((10,),))), torch.zeros(10)
    sent = [int(encoder.encode(gaussian(Spec(((10,),)), step), error).count_nonzero()) for step in range(100)]
    assert sum(sent) == 30 and max(sent) == 1


def test_a_tail_that_falls_as_a_power_is_met_at_once() -> None:
    """Of Pareto's values `1e6 tau**-4` are at least tau: after one turn the controller knows it."""
    asked, controller = 100.0, ThresholdController(tau=5.0)
    for _ in range(12):
        found = round(1e6 * controller.tau**-4)
        sent = min(found, 100)
        controller = controller.after(asked, 100, found, sent, (1e6 / sent) ** 0.25)
    assert controller.slope == pytest.approx(4, rel=0.05)
    assert 1e6 * controller.tau**-4 == pytest.approx(200, rel=0.05)


def test_nothing_but_zeros_is_looked_at_in_one_pass() -> None:
    controller = ThresholdController(tau=1.0).after(10.0, 10, 0, 0, 0.0)
    assert controller.tau == TINY and controller.budget(10.0) == 12
