"""The applications of objects: how many answers make a round, what bounds one, and which sums are wrong."""

from __future__ import annotations

import numpy as np
import pytest

from tweed.errors import UsageError
from tweed.systems.hoplite.applications import APPLICATIONS, RayServer, answer_of, bound, compute_of, measure
from tweed.systems.hoplite.ensemble import PIXELS, classes, query, scores


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


@pytest.mark.parametrize("name", ["AlexNet", "policy sync", "serving"])
def test_a_sum_of_other_answers_is_wrong(name: str) -> None:
    server = RayServer([None] * 3, APPLICATIONS[name], 4 * PIXELS, 0.1)
    given = server.array
    [server.note_given(worker) for worker in range(3)]
    total = np.sum([answer_of(number, server.app.answer, given) for number in (1, 3)], axis=0)
    server.follow(total, [0, 2])
    with pytest.raises(ValueError, match=rf"{name}: the sum of \[0, 1\] is wrong"):
        server.follow(total, [0, 1])


def test_what_is_served_are_the_classes_of_an_ensemble_in_one_process() -> None:
    server = RayServer([None] * 3, APPLICATIONS["serving"], 40 * PIXELS, 0.1)
    images = server.array
    [server.note_given(worker) for worker in range(3)]
    ensemble = np.sum([scores(number, images) for number in (1, 2, 3)], axis=0)
    server.follow(ensemble, [2, 0, 1])
    assert (server.served == classes(ensemble)).all() and len(set(server.served)) > 10
    assert (server.array != images).all(), "the next query is another one"


def test_scores_are_whole_numbers_whose_sum_does_not_depend_on_its_order() -> None:
    images = query(100_000)
    parts = [scores(number, images) for number in range(1, 24)]
    assert all((part == np.rint(part)).all() and abs(part).max() < 2**16 for part in parts)
    assert len({part.tobytes() for part in parts}) == len(parts), "each model has weights of its own"
    forth, back = sum(parts[1:], parts[0]), sum(parts[-2::-1], parts[-1])
    assert forth.dtype == np.float32 and (forth == back).all()
    assert len({tuple(classes(part)) for part in parts}) == len(parts)


def test_an_application_that_is_none_is_named() -> None:
    with pytest.raises(UsageError, match="no application 'LeNet'; there are AlexNet"):
        next(iter(measure(["LeNet"], 4, 0.1, 1)))
