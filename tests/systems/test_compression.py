"""The comparison of compressors, memories and cadences: when it evaluates, and what becomes of its notes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.systems.test_ltp import FACTS
from tweed.experiments import time_to_accuracy
from tweed.experiments.time_to_accuracy import ALONE, DDP
from tweed.experiments.training import Config
from tweed.report import study
from tweed.strategy import Strategy
from tweed.systems.compression import FULL, RATES, SEEDS, SYSTEM, methods
from tweed.systems.reports import compression as found_by
from tweed.systems.reports.compression import LADDER, PEERS

OURS = LADDER[-1]


def training(side: str, curve: list[tuple[int, float]], seed: int = 0, rate: str = "1gbit") -> Any:
    points = [[steps, steps * 0.01, accuracy] for steps, accuracy in curve]
    facts = {"kind": "training", "rate": rate, "side": side, "seed": seed, "lr": 0.1, "optimizer": "sgd"}
    return facts | {"curve": points, "packed_bytes": 1000.0, "link_bytes": 2000.0, "finish_s": 0.0}


def step_times(side: str, step_s: float, rate: str = "10mbit", finish_s: float = 0.0) -> Any:
    facts = {"kind": "step_times", "rate": rate, "side": side, "period": 1, "link_bytes": 1.0}
    seconds = [9 * step_s, 10 * step_s, 40 * step_s]
    return facts | {"steps": [10, 10, 10], "seconds": seconds, "finish_s": finish_s}


def small(finish_s: float = 0.0, reached: int = 80) -> list[Any]:
    """DDP ends at 85 % and 86 %, so the target is 85.0 %; it is there after 60 and 80 steps."""
    lines = [training(DDP, [(60, 0.851), (80, 0.85)], 0), training(DDP, [(60, 0.84), (80, 0.86)], 1)]
    lines += [training(OURS, [(reached, 0.87)], seed) for seed in (0, 1)]
    lines += [step_times(ALONE, 0.01), step_times(DDP, 1.0), step_times(OURS, 0.02, finish_s=finish_s)]
    return lines


def test_evaluations_come_after_whole_periods_and_more_often_later() -> None:
    config = Config(steps=384, every=16)
    assert Config(steps=384, every=16, stop=80).next_stop(64, 1) == 80
    assert [config.next_stop(0, 1), config.next_stop(192, 1), config.next_stop(192, 32)] == [64, 208, 224]
    assert [config.next_stop(376, 16), config.next_stop(0, 24)] == [384, 72]
    assert Config(steps=100, every=0).next_stop(0, 7) == 100


def test_time_to_the_target_is_steps_times_the_middle_round() -> None:
    lines = small()
    assert time_to_accuracy.target(lines) == pytest.approx(0.85)
    assert time_to_accuracy.time_to(lines, DDP, "10mbit") == pytest.approx(70.0)
    assert time_to_accuracy.time_to(lines, OURS, "10mbit") == pytest.approx(1.6)
    assert time_to_accuracy.gain(lines, OURS, "10mbit") == pytest.approx(43.75)
    assert time_to_accuracy.possible(lines, "10mbit") == pytest.approx(100)
    assert found_by.best(lines, "10mbit") == OURS


def test_making_one_model_in_the_end_costs() -> None:
    assert time_to_accuracy.time_to(small(finish_s=2.0), OURS, "10mbit") == pytest.approx(3.6)


def test_a_side_that_one_seed_did_not_bring_there_has_no_time() -> None:
    lines = [*small(), training(OURS, [(80, 0.8)], 2)]
    assert time_to_accuracy.time_to(lines, OURS, "10mbit") is None
    assert found_by.best(lines, "10mbit") is None


@pytest.mark.parametrize(("reached", "verdict"), [(40, "met"), (60, "missed")])
def test_the_share_of_the_possible_gain_is_judged(reached: int, verdict: str) -> None:
    rows = {row[0]: row for row in SYSTEM.study(small(reached=reached)).sections[0].tables[0].rows}
    assert rows["10 Mbit/s: the best at least 0.7 of the possible gain"][2] == verdict
    assert rows["10 Mbit/s: at least 10× DDP on Gloo"][2] == "met"


def test_the_best_learning_rate_is_that_of_the_search() -> None:
    found = [{"kind": "search", "side": "a", "lr": lr, "accuracy": lr * (1 - lr)} for lr in (0.2, 0.5, 0.7)]
    assert found_by.best_lr(found, "a", 0.1) == 0.5
    assert found_by.best_lr(found, "b", 0.1) == 0.1


def test_the_report_names_all_sides_and_needs_nothing_else() -> None:
    curve = [(192, 0.7), (384, 0.85)]
    sides = methods()
    lines = [step_times(side.label, 0.1, rate) for rate in RATES for side in sides]
    lines += [training(side.label, curve, seed) for seed in SEEDS for side in sides if side.label != ALONE]
    page = study.page(SYSTEM.study(lines), FACTS)
    assert "src=" not in page and page.count("<svg") == 2
    for side in sides:
        assert side.label in page


def test_sides_are_told_apart_and_the_named_ones_are_there() -> None:
    labels = [side.label for side in methods()]
    assert len(set(labels)) == len(labels)
    assert {*LADDER, *PEERS, *FULL, ALONE} <= set(labels)
    peers = ("alone", "ddp", "powersgd")
    assert all(side.how in peers or isinstance(side.how, Strategy) for side in methods())


def test_periods_are_whole_rounds_of_the_cadence() -> None:
    for side in methods():
        if isinstance(side.how, Strategy):
            assert side.period % getattr(side.how.cadence, "every", 1) == 0
