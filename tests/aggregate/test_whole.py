"""Rules that judge a contribution as a whole, and what is done before a rule: beside their definitions."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.aggregate.test_aggregate import arrivals, batch
from tests.compress.group import Group
from tweed.aggregate import (
    ARC,
    CAF,
    MDA,
    SMEA,
    Aggregate,
    Arrival,
    Bucketing,
    Bulyan,
    CentredClipping,
    DelayAdaptive,
    FoolsGold,
    GeometricMedian,
    InnerProducts,
    Krum,
    Mean,
    Median,
    MoNNA,
    MultiKrum,
    NearestNeighbourMixing,
    NormClipping,
    Phocas,
    Reason,
    ThreeSigma,
    TrimmedMean,
    Weighted,
    conclude,
)
from tweed.compress import Direct, ErrorFeedback, Identity, Memory, Spec, TopK
from tweed.errors import UsageError
from tweed.exchange.checkpoint import filled, plain
from tweed.exchange.owners import Owners

Part = Aggregate[Any]
Floats = NDArray[np.float64]
norm = np.linalg.norm


def drawn(seed: int, count: int = 11, numel: int = 6) -> Floats:
    """Most near to a point, some far away."""
    rng = np.random.default_rng(seed)
    found = rng.normal(size=(count, numel)) + rng.normal(size=numel)
    found[: count // 4] *= rng.uniform(1, 20)
    return found


def krum_order(x: Floats, f: int) -> list[int]:
    scores = [np.sort(norm(x - one, axis=1) ** 2)[: len(x) - f].sum() for one in x]
    return np.argsort(scores, kind="stable").tolist()


def bulyan(x: Floats, f: int) -> Floats:
    left, picked = list(x), []
    while len(picked) < len(x) - 2 * f:
        picked.append(left.pop(krum_order(np.array(left), f)[0]))
    rows = np.array(picked)
    order = np.argsort(np.abs(rows - np.median(rows, axis=0)), axis=0, kind="stable")
    return np.take_along_axis(rows, order, axis=0)[: len(x) - 4 * f].mean(axis=0)


def subset(x: Floats, f: int, badness: Callable[[Floats], float]) -> Floats:
    return min((x[list(s)] for s in combinations(range(len(x)), len(x) - f)), key=badness).mean(axis=0)


def diameter(x: Floats) -> float:
    return max(float(norm(a - b)) for a, b in combinations(x, 2))


def spread(x: Floats) -> float:
    return float(np.linalg.eigvalsh(np.cov(x.T, bias=True))[-1])


def weiszfeld(x: Floats, smoothing: float, iterations: int) -> Floats:
    z = np.zeros(x.shape[1])
    for _ in range(iterations):
        w = 1 / np.maximum(norm(x - z, axis=1), smoothing)
        z = (x * w[:, None]).sum(axis=0) / w.sum()
    return z


def centred(x: Floats, radius: float, iterations: int) -> Floats:
    v = np.zeros(x.shape[1])
    for _ in range(iterations):
        v = v + np.mean([(one - v) * min(1, radius / norm(one - v)) for one in x], axis=0)
    return v


def filtered(x: Floats, f: int) -> Floats:
    c, best, least = np.ones(len(x)), x.mean(axis=0), np.inf
    while c.sum() > len(x) - 2 * f:
        mean = (c[:, None] * x).sum(axis=0) / c.sum()
        values, vectors = np.linalg.eigh(np.cov(x.T, aweights=c, bias=True))
        if values[-1] < least:
            best, least = mean, values[-1]
        far = ((x - mean) @ vectors[:, -1]) ** 2
        c = np.maximum(c * (1 - far / far[c > 0].max()), 0)
    return best


def weighted_sums(x: Floats, f: int) -> Floats:
    return np.array([x[np.argsort(norm(x - one, axis=1), kind="stable")[: len(x) - f]].mean(0) for one in x])


def shortened(x: Floats, most: float) -> Floats:
    return x * np.minimum(1, most / norm(x, axis=1))[:, None]


#: Of eleven contributions, by rule: what its definition makes of them.
DEFINITIONS: dict[Part, Callable[[Floats], Floats]] = {
    Krum(3): lambda x: x[krum_order(x, 3)[0]],
    MultiKrum(3): lambda x: x[krum_order(x, 3)[:8]].mean(axis=0),
    Bulyan(2): lambda x: bulyan(x, 2),
    GeometricMedian(0.1, 3): lambda x: weiszfeld(x, 0.1, 3),
    CentredClipping(2.0, 3): lambda x: centred(x, 2.0, 3),
    MDA(3): lambda x: subset(x, 3, diameter),
    SMEA(3): lambda x: subset(x, 3, spread),
    CAF(3): lambda x: filtered(x, 3),
    MoNNA(3, sender=5): lambda x: x[np.argsort(norm(x - x[5], axis=1))[:8]].mean(axis=0),
    NearestNeighbourMixing(Median(), 3): lambda x: np.median(weighted_sums(x, 3), axis=0),
    NearestNeighbourMixing(Krum(2), 3): lambda x: weighted_sums(x, 3)[krum_order(weighted_sums(x, 3), 2)[0]],
    NormClipping(Mean(), 2.0): lambda x: shortened(x, 2.0).mean(axis=0),
    NormClipping(Mean()): lambda x: shortened(x, np.median(norm(x, axis=1))).mean(axis=0),
    ARC(Median(), 2): lambda x: np.median(shortened(x, np.sort(norm(x, axis=1))[-4]), axis=0),
}
definitions = pytest.mark.parametrize("rule", DEFINITIONS, ids=repr)
WHOLE: list[Part] = [*DEFINITIONS, ThreeSigma(), FoolsGold(), Bucketing(Phocas(1), size=2)]
whole = pytest.mark.parametrize("rule", WHOLE, ids=repr)


@definitions
@pytest.mark.parametrize("seed", range(12))
def test_it_is_what_its_definition_says(rule: Part, seed: int) -> None:
    x = drawn(seed)
    np.testing.assert_allclose(batch(rule, arrivals(x.tolist()))[0], DEFINITIONS[rule](x), atol=1e-6)


@whole
@pytest.mark.parametrize("numel", [0, 1, 63, 64, 700])
@pytest.mark.parametrize("server", [None, 0, 2])
def test_owners_of_ranges_come_to_what_one_owner_would(rule: Part, numel: int, server: int | None) -> None:
    """All that they tell each other is inner products; a state is carried on from batch to batch."""
    size = 11 + (server is not None)
    group = Group(Direct(Identity()), Spec(((numel,),)), size, Owners(0, size, rule, server))
    state = rule.start()
    for step in range(3):
        values = [torch.from_numpy(one).float() for one in drawn(step, size, numel)]
        for rank, value in enumerate(values):
            if rank != server:
                state = rule.handle(Arrival(value, rank), state, float(step))
        expected, _, state = conclude(rule, state, float(step))
        for update in group.exchange(values):
            torch.testing.assert_close(update.delta, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("memory", [Direct(Identity(by_ranges=True)), ErrorFeedback(TopK(0.2))], ids=repr)
def test_packets_are_judged_as_what_they_stand_for(memory: Memory[Any]) -> None:
    group = Group(memory, Spec(((640,),)), 7, Owners(0, 7, Krum(2)))
    values = [torch.from_numpy(one).float() for one in drawn(1, 7, 640)]
    updates = group.exchange(values)
    assert all(torch.equal(update.delta, updates[0].delta) for update in updates)
    kept = updates[0].delta != 0
    assert any(torch.allclose(updates[0].delta[kept], value[kept]) for value in values)


#: With two of eleven hostile: none of these is moved farther than honest contributions lie apart.
HOLD: list[Part] = [
    Krum(2), MultiKrum(2), Bulyan(2), GeometricMedian(), MDA(2), SMEA(2), CAF(2), MoNNA(2, sender=9),
    ThreeSigma(), NearestNeighbourMixing(Median(), 2), Bucketing(Median()), NormClipping(Median()),
    ARC(TrimmedMean(2), 2), CentredClipping(4.0, 20),
]  # fmt: skip


@pytest.mark.parametrize("rule", HOLD, ids=repr)
@given(
    seed=st.integers(0, 1000),
    size=st.sampled_from([0.0, 1.0, 1e3, 1e10, 1e18, 1e30]),
    alike=st.booleans(),
)
def test_hostile_contributions_move_it_no_farther_than_honest_ones_lie_apart(
    rule: Part, seed: int, size: float, alike: bool
) -> None:
    rng = np.random.default_rng(seed)
    honest = rng.normal(size=(9, 5)) + rng.normal(size=5)
    byzantine = size * (rng.normal(size=(1, 5)).repeat(2, axis=0) if alike else rng.normal(size=(2, 5)))
    update = batch(rule, arrivals(np.vstack([byzantine, honest]).tolist()))[0]
    assert norm(update - honest.mean(axis=0)) <= diameter(honest)


@whole
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e200])
def test_what_is_not_finite_or_absurdly_long_is_a_verdict(rule: Part, value: float) -> None:
    x = drawn(1)
    x[4, 2] = value
    update, verdicts = batch(rule, arrivals(x.tolist()))
    assert np.isfinite(update).all() and norm(update) < 100
    assert verdicts[4].weight == 0 and verdicts[4].reason is Reason.NOT_FINITE
    assert [verdict.sender for verdict in verdicts] == list(range(11))


@whole
def test_where_nothing_can_be_believed_nothing_is_changed(rule: Part) -> None:
    update, verdicts = batch(rule, arrivals([[float("nan")] * 3] * 11))
    assert update.tolist() == [0.0] * 3
    assert {verdict.reason for verdict in verdicts} == {Reason.NOT_FINITE}


@whole
def test_another_shape_is_a_verdict(rule: Part) -> None:
    arrived = arrivals(drawn(2).tolist())
    arrived[7] = Arrival(np.zeros(99), 7)
    update, verdicts = batch(rule, arrived)
    assert update.shape == (6,) and verdicts[7].reason is Reason.SHAPE and verdicts[7].weight == 0


@whole
def test_weights_say_what_counts(rule: Part) -> None:
    verdicts = batch(rule, arrivals(drawn(3).tolist()))[1]
    assert all(0 <= verdict.weight <= 1 + 1e-9 for verdict in verdicts)
    assert 0 < sum(verdict.weight for verdict in verdicts) <= 1 + 1e-9


@pytest.mark.parametrize(
    "rule", [NearestNeighbourMixing(Krum(2), 2), Bucketing(Median(), 2), ARC(Median(), 2)], ids=repr
)
def test_what_is_left_out_before_a_rule_counts_as_one_that_may_be_anything(rule: Part) -> None:
    rows = [[1.0], [1.1], [1.2], [math.nan], [math.nan]]
    update, verdicts = batch(rule, arrivals(rows))
    assert 0.9 < update[0] < 1.3
    assert [one.weight for one in verdicts[3:]] == [0.0, 0.0]


@whole
@pytest.mark.parametrize("size", [1e60, 1e76, 1e100, 1e130, 1e153])
def test_what_only_float64_can_hold_gets_nowhere(rule: Part, size: float) -> None:
    x = drawn(7)
    x[3] = size
    update, _ = batch(rule, arrivals(x.tolist()))
    bounded = not isinstance(rule, FoolsGold) and not (isinstance(rule, NormClipping) and rule.length == 2.0)
    assert np.isfinite(update).all()
    assert norm(update) < 100 or (not bounded and norm(update) <= size * 4)


def test_samples_and_delays_go_through_what_comes_before() -> None:
    arrived = [
        Arrival(np.array([float(sender)]), sender, samples=[1.0, 99.0][sender], delay=3 * sender)
        for sender in (0, 1)
    ]
    expected = batch(Weighted(power=1.0), arrived)[0]
    np.testing.assert_allclose(batch(NormClipping(Weighted(power=1.0), 1e9), arrived)[0], expected)
    assert expected.tolist() == [0.99 / 4]


def test_only_what_comes_later_than_workers_are_many_is_discounted() -> None:
    rule = DelayAdaptive(most=10)
    for delay, weight in ((0, 1.0), (10, 1.0), (20, 0.5), (1000, 0.01)):
        update, verdicts = batch(rule, [Arrival(np.array([3.0]), 0, delay=delay)])
        assert verdicts[0].weight == weight and update.tolist() == [pytest.approx(3 * weight)]
    both = [Arrival(np.array([1.0]), 0, samples=3.0), Arrival(np.array([1.0]), 1, delay=40)]
    assert batch(rule, both)[0].tolist() == [0.75 + 0.25 * 0.25]
    with pytest.raises(UsageError, match="at least 1"):
        DelayAdaptive(most=0)


def test_however_many_samples_are_told_the_mean_is_one() -> None:
    arrived = [Arrival(np.array([float(sender)]), sender, samples=1e308) for sender in (0, 2)]
    assert batch(Weighted(), arrived)[0].tolist() == [1.0]


@pytest.mark.parametrize("samples", [math.inf, math.nan, -5.0])
def test_absurd_samples_count_for_nothing(samples: float) -> None:
    arrived = [Arrival(np.array([1.0]), 0), Arrival(np.array([7.0]), 1, samples=samples)]
    assert batch(Weighted(), arrived)[0].tolist() == [1.0]


@whole
def test_a_state_is_stored_and_goes_on(rule: Part) -> None:
    state, other = rule.start(), None
    for step in range(4):
        for arrival in arrivals(drawn(step).tolist()):
            state = rule.handle(arrival, state, 0.0)
            other = other and rule.handle(arrival, other, 0.0)
        update, _, state = conclude(rule, state, 0.0)
        if other is not None:
            found, _, other = conclude(rule, other, 0.0)
            np.testing.assert_array_equal(found, update)
        if step == 1:
            other = filled(rule.start(), plain(state))


@whole
def test_contributions_to_another_model_begin_anew(rule: Part) -> None:
    state = rule.start()
    for numel in (6, 9, 3):
        for arrival in arrivals(drawn(1, numel=numel).tolist()):
            state = rule.handle(arrival, state, 0.0)
        update, _, state = conclude(rule, state, 0.0)
        assert update.shape == (numel,) and np.isfinite(update).all()


def test_vectors_of_different_lengths_have_no_inner_products() -> None:
    with pytest.raises(UsageError, match="vectors of"):
        InnerProducts([torch.zeros(3), torch.zeros(4)]).of_range()


def test_two_large_contributions_of_one_sender_do_not_overflow() -> None:
    rule, state = FoolsGold(), FoolsGold().start()
    for _ in range(3):
        for sender in range(4):
            value = torch.full((3,), 2e38 if sender == 0 else 1.0 + sender)
            state = rule.handle(Arrival(value, sender), state, 0.0)
        update, verdicts, state = conclude(rule, state, 0.0)
        assert bool(update.isfinite().all()) and len(verdicts) == 4


def test_the_centre_is_the_last_aggregate() -> None:
    rule = CentredClipping(radius=1.0)
    state, found = rule.start(), []
    for _ in range(3):
        for sender in range(3):
            state = rule.handle(Arrival(np.array([10.0, 0.0]), sender), state, 0.0)
        update, _, state = conclude(rule, state, 0.0)
        found.append(update.tolist())
    assert found == [[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]


def test_those_who_always_say_the_same_count_less() -> None:
    rule, state = FoolsGold(), FoolsGold().start()
    rng = np.random.default_rng(3)
    for _ in range(4):
        honest = [row + 2 * np.eye(8)[sender] for sender, row in enumerate(rng.normal(size=(4, 8)) / 4)]
        for sender, value in enumerate([*honest, *[np.full(8, -1.0)] * 3]):
            state = rule.handle(Arrival(value, sender), state, 0.0)
        _, verdicts, state = conclude(rule, state, 0.0)
    assert all(verdict.weight > 0.1 for verdict in verdicts[:4])
    assert sum(verdict.weight for verdict in verdicts[4:]) < 1e-6


def test_three_sigma_leaves_out_what_is_unusually_far_though_it_is_a_third() -> None:
    rng = np.random.default_rng(4)
    x = np.vstack([rng.normal(size=(8, 20)), rng.normal(size=(4, 20)) + 50])
    verdicts = batch(ThreeSigma(), arrivals(x.tolist()))[1]
    assert [verdict.weight for verdict in verdicts] == [1 / 8] * 8 + [0.0] * 4


def test_groups_are_drawn_anew_for_each_batch() -> None:
    rule = Bucketing(Median(), size=3)
    state, found = rule.start(), set()
    for _ in range(8):
        for arrival in arrivals(drawn(5).tolist()):
            state = rule.handle(arrival, state, 0.0)
        update, _, state = conclude(rule, state, 0.0)
        found.add(update.tobytes())
    assert len(found) > 4


@pytest.mark.parametrize(
    ("rule", "count", "words"),
    [
        (Krum(2), 4, "needs at least 5 contributions, and there are 4"),
        (Bulyan(2), 10, "needs at least 11 contributions, and there are 10"),
        (MDA(13), 60, "leaves out more than 12"),
        (SMEA(10), 30, "30,045,015 subsets"),
        (Bucketing(TrimmedMean(2)), 8, "needs at least 5 contributions, and there are 4"),
        (NearestNeighbourMixing(Mean(), 4), 8, "needs at least 9"),
        (ARC(Krum(3), 0), 6, "needs at least 7"),
    ],
)
def test_a_rule_that_cannot_hold_says_so(rule: Part, count: int, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        rule.require(count)
    with pytest.raises(UsageError, match=words):
        batch(rule, arrivals([[1.0]] * count))


@pytest.mark.parametrize(
    "make",
    [
        lambda: GeometricMedian(smoothing=0), lambda: CentredClipping(radius=0), lambda: ThreeSigma(0),
        lambda: NormClipping(Mean(), 0), lambda: NormClipping(Mean(), "mean"), lambda: Bucketing(Mean(), 0),  # type: ignore[arg-type]
        lambda: Bucketing(MoNNA()), lambda: NormClipping(Mean), lambda: ARC(Mean(), 0.5),  # type: ignore[arg-type]
        lambda: NearestNeighbourMixing(3),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(make: Callable[[], Part]) -> None:
    with pytest.raises(UsageError):
        make()


def test_a_pair_that_is_farthest_apart_does_not_hide_another() -> None:
    """Those to leave out cover all pairs that are too far apart: against all subsets, ties too."""
    rng = np.random.default_rng(6)
    for _ in range(200):
        x = rng.integers(0, 4, size=(9, 2)).astype(float)
        f = int(rng.integers(0, 4))
        kept = list(combinations(range(9), 9 - f))
        best = min(kept, key=lambda s: diameter(x[list(s)]) if len(s) > 1 else 0.0)
        np.testing.assert_allclose(batch(MDA(f), arrivals(x.tolist()))[0], x[list(best)].mean(axis=0))
