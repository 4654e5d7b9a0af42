"""The applications of objects: how many answers make a round, what bounds one, and which sums are wrong."""

from __future__ import annotations

import numpy as np
import pytest

from tweed.errors import UsageError
from tweed.experiments.object_applications import APPLICATIONS, SMALL, RayServer, bound, compute_of, measure


def test_the_first_answers_are_as_many_as_in_the_paper() -> None:
    answers = {name: app.answers(15) for name, app in APPLICATIONS.items()}
    assert answers["AlexNet"] == 7 and answers["actor-critic"] == 8 and answers["serving"] == 15


def test_the_paper_s_models_compute_for_so_many_transfers() -> None:
    assert compute_of("AlexNet") == pytest.approx(0.21, abs=0.01)
    assert compute_of("VGG-16") == pytest.approx(1.82, abs=0.01)
    assert compute_of("ResNet-50") == pytest.approx(6.96, abs=0.01)


def test_a_round_is_bounded_by_the_server_s_link_or_by_its_workers() -> None:
    assert bound(APPLICATIONS["AlexNet"], 15) == 1.0
    assert bound(APPLICATIONS["ResNet-50"], 14) == pytest.approx(0.5 * (1 + compute_of("ResNet-50")))
    assert bound(APPLICATIONS["serving"], 8) == pytest.approx(4.1)


@pytest.mark.parametrize("name", ["AlexNet", "serving"])
def test_a_sum_of_other_answers_is_wrong(name: str) -> None:
    server = RayServer([None] * 3, APPLICATIONS[name], 2 * SMALL, 0.1)
    server.had = dict.fromkeys(range(3), server.array[:SMALL])
    unit = 1.0 if server.app.is_gradient else server.array[:SMALL]
    server.follow(np.float32(1 + 3) * np.asarray(unit, np.float32), [0, 2])
    with pytest.raises(ValueError, match=rf"{name}: the sum of \[0, 1\] is wrong"):
        server.follow(np.float32(4) * np.asarray(unit, np.float32), [0, 1])


def test_an_application_that_is_none_is_named() -> None:
    with pytest.raises(UsageError, match="no application 'LeNet'; there are AlexNet"):
        next(iter(measure(["LeNet"], 4, 0.1, 1)))
