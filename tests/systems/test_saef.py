"""What must hold for SAEF, on virtual workers; and its report."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.simulate.problem import SIZE, loss, perceptron, sgd
from tweed.compress import ErrorFeedback, Identity, RandomBlocks, StepAhead, TopK
from tweed.recipes import saef
from tweed.simulate.workers import Workers
from tweed.strategy import Strategy
from tweed.systems import system
from tweed.systems.saef.contenders import BUDGET, FRACTIONS, MISMATCH, federated

STEPS = 12


def workers_of(memory: object | None) -> Workers:
    torch.set_num_threads(1)
    return Workers(perceptron(), sgd, Strategy("step", compress=memory), SIZE)  # type: ignore[arg-type]


def train(memory: object | None, steps: int = STEPS) -> Workers:
    workers = workers_of(memory)
    for step in range(steps):
        workers.step(loss(step))
    return workers


def ahead(workers: Workers) -> Tensor:
    """Where the mean of all would stand, had all been said."""
    return sum(worker.reference + worker.buffer.state.error for worker in workers.all) / SIZE


@pytest.mark.parametrize("fraction", [0.0, 0.5, 1.0])
def test_where_all_is_said_it_is_sgd_to_the_bit(fraction: float) -> None:
    plain = train(None).all[0].flat.values
    assert torch.equal(train(StepAhead(Identity(), fraction)).all[0].flat.values, plain)
    assert torch.equal(train(ErrorFeedback(Identity())).all[0].flat.values, plain)


@pytest.mark.parametrize("compressor", [TopK(0.05), RandomBlocks(8, block=16)], ids=repr)
def test_errors_averaged_each_step_follow_the_uncompressed_path(compressor: TopK | RandomBlocks) -> None:
    compressed, plain = workers_of(StepAhead(compressor, average_every=1)), workers_of(None)
    for step in range(STEPS):
        compressed.step(loss(step))
        plain.step(loss(step))
        torch.testing.assert_close(ahead(compressed), plain.all[0].flat.values, rtol=0, atol=2e-6)


def test_gradients_are_taken_at_one_point_only_if_errors_are_averaged_each_step() -> None:
    for every, equal in ((1, True), (0, False), (STEPS + 1, False)):
        workers = train(StepAhead(TopK(0.05), average_every=every))
        points = [worker.flat.values for worker in workers.all]
        assert all(torch.allclose(point, points[0], atol=1e-7) for point in points) == equal
        assert torch.equal(workers.all[0].reference, workers.all[1].reference)


def test_a_fraction_of_none_is_error_feedback_to_the_bit() -> None:
    none, feedback = train(StepAhead(TopK(0.1), fraction=0.0)), train(ErrorFeedback(TopK(0.1)))
    assert torch.equal(none.all[0].flat.values, feedback.all[0].flat.values)
    assert torch.equal(none.all[3].buffer.state.error, feedback.all[3].buffer.state.error)


def test_half_the_values_and_an_average_now_and_then_are_as_many_values() -> None:
    """With indices, 8 bytes per entry, the average costs less than the entries that it replaces."""
    numel = workers_of(None).all[0].flat.values.numel()
    often, rare = (train(memory, 40).traffic.up_bytes for memory in (ErrorFeedback(TopK(0.1)), saef().memory))
    headers = 40 * SIZE * 16
    assert often == pytest.approx(40 * 8 * round(0.1 * numel), abs=headers)
    assert rare == pytest.approx(40 * 8 * round(0.05 * numel) + 2 * 4 * numel, abs=headers)


def test_strategies_are_what_their_names_say() -> None:
    assert BUDGET["SAEF, top 5 %, P = 20"].memory == StepAhead(TopK(0.05), 1.0, 20)
    assert MISMATCH["SAEF, top 1 %, P = 1"].memory == StepAhead(TopK(0.01), 1.0, 1)
    assert [federated(fraction).memory.fraction for fraction in FRACTIONS] == list(FRACTIONS)  # type: ignore[union-attr]


def training(method: str, seed: int, accuracy: float, losses: list[float]) -> dict[str, object]:
    shares = {"up_share": 0.2 if "EF, top 10" in method else 0.15, "down_share": 0.3}
    facts = {"kind": "training", "part": "budget", "method": method, "lr": 0.1, "seed": seed}
    return facts | {"accuracy": accuracy, "losses": losses} | shares


def stall(fraction: float, seed: int, end: float) -> dict[str, object]:
    facts = {"kind": "training", "part": "stall", "partition": "by_label", "fraction": fraction, "seed": seed}
    curve = [(50, 2.0, 0.3), (100, 2.0 + seed / 100 * fraction, 0.4)]
    return facts | {"curve": curve, "test_loss": end + seed / 100, "accuracy": 0.5, "steps": 1000, "lr": 0.1}


def goals(lines: list[dict[str, object]]) -> dict[str, list[str]]:
    return {row[0]: list(row[1:]) for row in system("saef").study(lines).sections[0].tables[0].rows}


def test_goals_are_judged_by_the_noise_of_seeds() -> None:
    lines = []
    for seed in range(5):
        noise = seed / 1000
        lines += [training("dense", seed, 0.8 + noise, [1.0, 0.5])]
        lines += [training("EF, top 10 %", seed, 0.79 + noise + seed % 2 / 1000, [1.0, 0.6])]
        lines += [training("SAEF, top 5 %, P = 20", seed, 0.797 + seed % 3 / 500, [0.9, 0.6])]
        lines += [stall(fraction, seed, end) for fraction, end in ((0.0, 0.5), (0.9, 0.4), (1.0, 0.6))]
    found = goals(lines)
    assert found["accuracy of SAEF at least that of EF"][1] == "met"
    assert found["accuracy of SAEF within 0.2 points of dense"][1] == "no difference"
    assert found["training loss of EF over that of SAEF, mean over training: > 1"][1] == "met"
    said = found["values sent by SAEF, top 5 % and P = 20, as many as by EF, top 10 %, within 1 %"]
    assert said == ["10.00% against 10.00% of all", "met"]
    assert found["by_label: test loss of a whole step ahead over that of EF, at the end: > 1"][1] == "met"
    early = found["by_label: test loss of EF over that of a whole step ahead, step 100: > 1"]
    assert early == ["0.99× (0.98 to 1.00; 5 seeds)", "missed"] or early[1] == "no difference"
    between = "by_label: test loss of the better of both over that of a fraction between, at the end: > 1"
    assert found[between][1] == "met"
