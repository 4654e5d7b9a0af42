"""Ordered transmission under a virtual clock: what it promises, and what disturbs it."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.cadence import Moves, Ordered, ServerPolicy
from tweed.simulate.ordered import Air, Cell, Iteration

RANKS, NUMEL, RATE = 8, 12, 0.05
REFEREES = [
    ServerPolicy(history=Moves(RATE)),
    ServerPolicy(history=Moves(RATE), silence=False),
    ServerPolicy(share=0.9),
    ServerPolicy(share=0.3, silence=False),
]
ROUGH = Air(send_s=2e-3, latency_s=1e-3, slot_s=1e-3, skew_s=[0.004 * rank - 0.01 for rank in range(RANKS)])
every_policy = pytest.mark.parametrize("policy", REFEREES, ids=repr)
every_air = pytest.mark.parametrize(
    "air", [Air(), replace(ROUGH, slot_s=0.0), ROUGH], ids=["ideal", "late", "slots"]
)


class Descent:
    """Gradient descent on a sum of quadratic functions, one per rank, of which each rank's part is heard in
    order."""

    def __init__(self, policy: ServerPolicy, air: Air, seed: int = 1) -> None:
        random = np.random.default_rng(seed)
        self.curves = random.uniform(0.1, 1.5, (RANKS, 1)) ** 3 * random.uniform(0.2, 1.0, (RANKS, NUMEL))
        self.best = random.normal(size=(RANKS, NUMEL))
        self.x = np.zeros(NUMEL)
        self.held = np.zeros((RANKS, NUMEL))
        self.cell = Cell(Ordered(policy), RANKS, air)

    def gradients(self) -> np.ndarray:
        found: np.ndarray = self.curves * (self.x - self.best)
        return found

    def step(self) -> tuple[Iteration, np.ndarray, np.ndarray]:
        """Returns the iteration, the lengths of what there was to say, and the error of the sum that was
        used."""
        gradients = self.gradients()
        lengths = np.linalg.norm(gradients - self.held, axis=1)

        def hear(rank: int) -> float:
            self.held[rank] = gradients[rank]
            return float(np.linalg.norm(self.held.sum(axis=0)))

        iteration = self.cell.iterate(lengths.tolist(), hear)
        used = self.held.sum(axis=0)
        self.x = self.x - RATE * used
        self.cell.moved(RATE * float(np.linalg.norm(used)))
        return iteration, lengths, gradients.sum(axis=0) - used


@every_policy
@every_air
def test_what_is_left_out_is_never_more_than_the_server_vouches_for(policy: ServerPolicy, air: Air) -> None:
    descent = Descent(policy, air)
    for _ in range(60):
        iteration, lengths, error = descent.step()
        assert sorted(iteration.sent + iteration.silent) == list(range(RANKS))  # one message each
        assert all(lengths[rank] <= iteration.level or lengths[rank] == 0 for rank in iteration.silent)
        if math.isfinite(iteration.level):
            assert np.linalg.norm(error) <= iteration.allowed * (1 + 1e-9)


@every_policy
def test_the_longest_is_heard_first(policy: ServerPolicy) -> None:
    descent = Descent(policy, Air(send_s=1e-4))
    for _ in range(60):
        iteration, lengths, _ = descent.step()
        heard = [lengths[rank] for rank in iteration.sent]
        assert all(later <= earlier * (1 + 1e-9) for earlier, later in pairwise(heard))


@every_air
def test_with_nothing_allowed_it_is_gradient_descent_bit_for_bit(air: Air) -> None:
    descent, x = Descent(ServerPolicy(history=Moves(RATE, share=0.0)), air), np.zeros(NUMEL)
    for _ in range(40):
        x = x - RATE * (descent.curves * (x - descent.best)).sum(axis=0)
        iteration, _, _ = descent.step()
        assert not iteration.silent
        assert np.array_equal(x, descent.x)


@given(seed=st.integers(0, 10_000))
def test_those_who_speak_are_among_those_of_lag(seed: int) -> None:
    descent = Descent(ServerPolicy(history=Moves(RATE)), Air(), seed)
    for _ in range(25):
        allowed = descent.cell.cadence.policy.allowed(descent.cell.server)
        iteration, lengths, _ = descent.step()
        lag = {rank for rank in range(RANKS) if lengths[rank] > allowed / RANKS * (1 - 1e-9)}
        assert set(iteration.sent) <= lag, f"seed {seed}"


@every_air
def test_it_converges_and_saves_messages(air: Air) -> None:
    descent = Descent(ServerPolicy(share=0.9), air)
    said = [len(descent.step()[0].sent) for _ in range(200)]
    assert np.linalg.norm(descent.gradients().sum(axis=0)) < 1e-3
    assert sum(said) < 0.8 * RANKS * len(said)


def test_silence_may_be_all_that_is_heard() -> None:
    descent = Descent(ServerPolicy(history=Moves(RATE, share=0.9)), Air())
    assert min(len(descent.step()[0].sent) for _ in range(60)) == 0


def test_a_longer_message_that_comes_late_is_counted_all_the_same() -> None:
    """The longest has a clock that is half a second late: the server stops without it, and gets it then."""
    late = [0.0] * 7 + [0.5]
    cell = Cell(Ordered(ServerPolicy(share=0.5), window_s=0.1), RANKS, Air(skew_s=late))
    heard: list[int] = []

    def hear(rank: int) -> float:
        heard.append(rank)
        return 10.0

    iteration = cell.iterate([1.0, 2.0, 3.0, 0.1, 0.1, 0.1, 0.1, 9.0], hear)
    assert heard[-1] == 7 and iteration.sent[-1] == 7
    assert iteration.level < 9.0


def test_slots_collide_and_all_get_through() -> None:
    descent = Descent(ServerPolicy(history=Moves(RATE, share=0.0)), ROUGH)
    iterations = [descent.step()[0] for _ in range(20)]
    assert sum(iteration.collisions for iteration in iterations) > 0
    assert all(len(iteration.sent) == RANKS for iteration in iterations)


def test_an_iteration_ends_with_its_window() -> None:
    descent = Descent(ServerPolicy(history=Moves(RATE, share=0.0)), Air())
    assert all(descent.step()[0].seconds <= 0.05 * (1 + 1e-6) for _ in range(20))


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = (Descent(REFEREES[0], ROUGH) for _ in range(2))
    assert [first.step()[0] for _ in range(20)] == [second.step()[0] for _ in range(20)]
