"""Iterations with several messages: closed forms, and that what slow workers did counts."""

from __future__ import annotations

import numpy as np
import pytest

from tweed.data.coding import gradient_code, uncoded
from tweed.data.coding.times import SCHEMES, Stragglers, choose, mean_of, of_rows, of_shares, of_values

TASKS = np.array([1.0, 2.0, 3.0, 4.0, 10.0])


def test_one_message_of_a_gradient_code_waits_for_so_many_workers() -> None:
    for load, last in ((1, 10.0), (2, 4.0), (3, 3.0)):
        found = of_rows(gradient_code(5, load), TASKS, 0.5)
        assert found.seconds == pytest.approx(load * last + 0.5) and found.messages == 6 - load


def test_uncoded_messages_end_when_the_last_shard_has_come_from_whoever_is_first() -> None:
    """The last shard is the slowest worker's own; of others one has it second, at 8 s, one third, at 9."""
    assert of_shares(1, 1.0, TASKS, 0.0).seconds == 10
    assert of_shares(3, 1.0, TASKS, 0.0).seconds == 8
    assert of_shares(3, 0.8, TASKS, 0.0).seconds == 4
    assert of_shares(2, 1.0, TASKS, 0.25).seconds == 8.5
    for load in (1, 2, 3):
        rows, shares = of_rows(uncoded(5, load), TASKS, 0.1), of_shares(load, 1.0, TASKS, 0.1)
        assert rows.seconds == pytest.approx(shares.seconds)


def test_any_values_of_a_lagrange_code_count_also_many_of_one_worker() -> None:
    at_four = 4 + 2 + 1 + 1
    assert of_values(at_four, 5, True, TASKS, 0.0).seconds == 4
    assert of_values(at_four + 1, 5, True, TASKS, 0.0).seconds == 5
    assert of_values(3, 2, False, TASKS, 0.0).seconds == 6


@pytest.mark.parametrize("scheme", SCHEMES)
def test_without_stragglers_messages_are_no_worse_than_one_shard_each(scheme: str) -> None:
    even = Stragglers(1.0, 1e9)
    found = mean_of(scheme, 2, even, 10, 3)
    assert found.seconds == pytest.approx(2.0 if "LCC" in scheme or scheme == "GC" else 1.0, rel=1e-6)


def test_the_choice_goes_by_what_messages_cost() -> None:
    cheap, dear = (choose(Stragglers(0.01, 10.0, cost), 10, (1, 3)) for cost in (0.0, 1.0))
    assert cheap[1] == 3 and "messages" in cheap[0]
    assert dear in [("LCC", 3), ("GC", 3), ("uncoded, one shard", 1)]


@pytest.mark.parametrize("seed", range(10))
def test_codes_that_span_the_same_know_the_sum_at_the_same_time(seed: int) -> None:
    task_s = Stragglers(0.01, 10.0).task_s(12, 1, seed)[0]
    plain = SCHEMES["uncoded, messages"](3, task_s, 0.003)
    for scheme in ("GC, messages", "hybrid"):
        assert SCHEMES[scheme](3, task_s, 0.003) == pytest.approx(plain)
