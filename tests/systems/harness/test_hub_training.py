"""Trainings through a virtual hub: what their lines say, and that a seed decides all."""

from __future__ import annotations

from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

from tweed.aggregate import All, Cache
from tweed.cadence import LocalSteps
from tweed.collective import Hub
from tweed.report.notes import Line
from tweed.simulate.attacks import LabelFlip
from tweed.strategy import Strategy
from tweed.systems.harness import hub_training
from tweed.systems.harness.hub_training import Config, Devices, accuracy_at, reached_s, train


def line(*accuracies: float) -> Line:
    return {"curve": [(10.0 * place, place, found, 100 * place) for place, found in enumerate(accuracies, 1)]}


def test_a_target_is_reached_when_five_evaluations_have_it_in_the_mean() -> None:
    assert reached_s(line(0.9, 0.9, 0.1, 0.9, 0.9, 0.9, 0.9, 0.9), 0.9) == 80.0
    assert reached_s(line(0.9, 0.9, 0.9, 0.9), 0.9) is None
    assert reached_s(line(*[0.5] * 9), 0.5001) is None


def test_accuracy_at_a_point_is_that_of_the_five_before() -> None:
    curve = line(0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
    assert accuracy_at(curve, 0, 59.9) == pytest.approx(0.2)
    assert accuracy_at(curve, 1, 6) == pytest.approx(0.3)
    assert accuracy_at(curve, 3, 499) is None


@pytest.mark.parametrize("seed", range(3))
def test_devices_are_within_their_ends_and_differ(seed: int) -> None:
    devices = Devices(200)
    conditions = devices.conditions(seed)
    ups, downs = zip(*map(conditions.rates, range(200)), strict=True)
    assert devices.up[0] <= min(ups) < 1.2 * devices.up[0] and 0.8 * devices.up[1] < max(ups) <= devices.up[1]
    assert devices.down[0] <= min(downs) and max(downs) <= devices.down[1]
    times = [conditions.compute_s(member, 1) for member in range(200)]
    assert min(times) >= devices.task_s[0] and len(set(times)) == 200


CONFIG = Config(
    "digits",
    Strategy("difference", LocalSteps(10), collective=Hub(0, Cache(5), 5)),
    seconds=200.0,
    devices=Devices(10, up=(20_000.0, 200_000.0)),
)


def test_validators_have_samples_of_their_own_and_alone_they_learn_from_no_other() -> None:
    drawn: dict[int, list[int]] = {}

    class Seen:
        arrays = SimpleNamespace(test=range(50))

        def test_loss(self, model: Any, picked: Any) -> Any:
            drawn.setdefault(len(drawn) + 1, picked.tolist())

    config = replace(CONFIG, test_samples=20, trusted=4, pool=12, validators=3)
    loss = hub_training._trusted(config, Seen())  # type: ignore[arg-type]
    for number in range(1, 31):
        loss(nn.Identity(), number)
    parts = [{at for number in drawn if number % 3 == part for at in drawn[number]} for part in range(3)]
    assert parts[1] == {20, 23, 26, 29} and parts[2] == {21, 24, 27, 30} and parts[0] == {22, 25, 28, 31}
    whole = Strategy("difference", LocalSteps(4), collective=Hub(0, All()))
    few = replace(CONFIG, strategy=whole, test_samples=180, trusted=2, pool=4, validators=2, alone=True)
    few = replace(few, devices=Devices(2, up=(1e9, 1e9), down=(1e9, 1e9)), updates=60)
    assert train(replace(few, pool=180, trusted=8)).accuracy > train(few).accuracy + 0.1


def test_a_seed_decides_all() -> None:
    first, again, other = (asdict(train(replace(CONFIG, seed=seed))) for seed in (3, 3, 4))
    assert first == again != other
    assert first["counted"] > 50 and first["most_delay"] >= first["delay"] >= 0
    assert first["up_share"] == pytest.approx(1, abs=0.1)


def test_it_learns_and_devices_with_wrong_labels_harm() -> None:
    fine = train(CONFIG)
    flipped = train(replace(CONFIG, hostile=7, attack=LabelFlip()))
    assert fine.accuracy > 0.6 and flipped.accuracy < fine.accuracy - 0.2


def test_it_ends_after_so_many_updates() -> None:
    found = train(replace(CONFIG, updates=4))
    assert found.curve[-1][1] == 4
