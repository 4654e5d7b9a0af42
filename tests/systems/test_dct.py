"""What must hold for DCT; and its report."""

from __future__ import annotations

import pytest
import torch

from tests.simulate.problem import SIZE, loss, perceptron, sgd
from tweed.compress import Entries, Spec, Threshold, Turn
from tweed.recipes import dct, every_step
from tweed.simulate.workers import Workers
from tweed.strategy import Strategy
from tweed.systems import system
from tweed.systems.reports.dct import per_step

SPEC = Spec(((400, 10), (300,)))


def train(plan: Strategy, steps: int = 12) -> Workers:
    torch.set_num_threads(1)
    workers = Workers(perceptron(), sgd, plan, SIZE)
    for step in range(steps):
        workers.step(loss(step))
    return workers


def gradient(step: int) -> torch.Tensor:
    return torch.randn(SPEC.numel, generator=torch.Generator().manual_seed(step))


@pytest.mark.parametrize("life_span", [1, 4, 1000])
def test_said_and_left_are_what_was_given(life_span: int) -> None:
    compressor = Threshold(0.05, life_span)
    error, state = torch.zeros(SPEC.numel), compressor.start(SPEC)
    for step in range(8):
        whole = gradient(step) + error
        packet, state = compressor.encode(gradient(step), state, Turn(SPEC, step), error)
        said = torch.zeros(SPEC.numel)
        packet.add_to(said)
        assert torch.equal(said + error, whole)
        assert not bool((said.bool() & error.bool()).any())


def test_a_threshold_says_exactly_its_share_when_found_and_lives_on() -> None:
    compressor = Threshold(0.05, 4)
    error, state = torch.zeros(SPEC.numel), compressor.start(SPEC)
    counts, taus = [], []
    for step in range(9):
        packet, state = compressor.encode(gradient(step), state, Turn(SPEC, step), error)
        assert isinstance(packet, Entries)
        counts.append(len(packet.indices))
        taus.append(tuple(state.taus.tolist()))
    exact = round(0.05 * 4000) + round(0.05 * 300)
    assert [counts[step] for step in (0, 4, 8)] == [exact] * 3
    assert len(set(taus[:4])) == len(set(taus[4:8])) == 1 and len(set(taus)) == 3
    assert counts[1] > exact  # what was left has grown, and the threshold has not


def test_without_sparsity_it_is_dense_training() -> None:
    sparse, dense = train(dct(0.0, 3)), train(every_step())
    assert torch.equal(sparse.all[0].flat.values, dense.all[0].flat.values)


def test_the_name_is_its_expression() -> None:
    memory = dct(0.99, 100).memory
    assert memory is not None and memory.parts == {"main": Threshold(0.01, 100)}


def line(method: str, seed: int, accuracy: float, up_share: float) -> dict[str, object]:
    facts = {"kind": "training", "task": "digits", "method": method, "seed": seed, "accuracy": accuracy}
    return facts | {"up_share": up_share, "down_share": 0.1, "up_shares": [0.02, 0.03, 0.02]}


def test_goals_show_what_was_met() -> None:
    sides = (("dense", 0.9, 1.0), ("DCT", 0.897, 0.02), ("top-k each step", 0.898, 0.02))
    lines = [line(method, seed, accuracy, share) for method, accuracy, share in sides for seed in range(5)]
    lines += [line("DCT, nothing fed back", seed, 0.6, 0.02) for seed in range(5)]
    lines += [line("DCT, indices coded", 0, 0.897, 0.0125)]
    timed = {1: {"life_span": 1, "numel": 100, "found_s": 5.0, "kept_s": 5.0}}
    timed[1000] = {"life_span": 1000, "numel": 100, "found_s": 5.0, "kept_s": 1.0}
    timed[0] = {"life_span": 0, "numel": 100, "found_s": 600.0, "kept_s": 600.0}
    lines += [{"kind": "encoding"} | each for each in timed.values()]
    assert per_step(timed, 1000) == pytest.approx(1.004)
    found = {row[0]: list(row[1:]) for row in system("dct").study(lines).sections[0].tables[0].rows}
    within = found["digits: DCT within 0.5 points of dense"]
    assert within == ["-0.30 points (-0.30 to -0.30; 5 seeds)", "met"]
    assert found["digits: DCT ahead of DCT without error feedback by 0.5 points"][1] == "met"
    assert found["digits: values sent, 100× fewer"] == ["100.0×", "met"]
    assert found["digits: bytes sent, 100× fewer"] == ["50.0×; 80.0× with indices coded", "missed"]
    drift = found["digits: DCT sends within 2× of what was asked for"]
    assert drift == ["1.00× to 1.50×, in the mean over 10 steps", "met"]
    overhead = found["encoding at a life span of 1,000 takes at most 1/500 of that at 1"]
    assert overhead == ["1/5.0: the pass over all values stays", "missed"]
    assert found["the same, beside torch.topk at each step"] == ["1/598", "met"]
