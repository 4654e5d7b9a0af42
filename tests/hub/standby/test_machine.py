"""A standby applies the same commits and takes over: nothing counts twice, the model is that of the log."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from tweed.aggregate import All, Cache, CommitRule, Each, Krum, Mean
from tweed.errors import UsageError
from tweed.hub.machine import Hub, Offer, Payload, Step
from tweed.hub.machine.open_groups import Aggregation
from tweed.hub.machine.worker import Compute
from tweed.hub.standby.machine import Divergence, Standby
from tweed.hub.wire.messages import Copy, Entry, Unit
from tweed.order import BoundedDelay, FirstIn
from tweed.rng import uniform
from tweed.simulate.hub import Conditions, each
from tweed.simulate.replicated_hub import Failures, ReplicatedHub, Site

MEMBERS = 8
WHENS: list[CommitRule] = [Each(), Cache(4), All()]


def value(member: int, task: int) -> np.ndarray:
    """Numbers whose sum depends on the order, as those of gradients do."""
    return np.array([uniform(5, member, task, place) - 0.5 for place in range(4)])


class Model:
    """SGD with momentum, and the log of what it stepped by."""

    def __init__(self, momentum: float = 0.9) -> None:
        self.momentum = momentum
        self.weights, self.speed = np.zeros(4), np.zeros(4)
        self.log: list[Step] = []

    def apply(self, step: Step | None) -> tuple[Any, int]:
        if step is not None:
            self.log.append(step)
            self.speed = self.momentum * self.speed + step.update
            self.weights = self.weights - 0.1 * self.speed
        return self.weights, 20

    def site(self) -> Site:
        return Site(self.apply, lambda: (self.weights, self.speed, list(self.log)), self.load)

    def load(self, state: Any) -> None:
        self.weights, self.speed, log = state
        self.log = list(log)


class Run:
    """Two sites, and a hub that may be killed."""

    def __init__(self, seed: int, failures: Failures, **settings: Any) -> None:
        when = WHENS[seed % len(WHENS)]
        momentum = settings.pop("momentum", 0.9)
        self.models = Model(momentum), Model(momentum)
        self.told: list[set[int]] = [set() for _ in range(MEMBERS)]
        self.before = [0] * MEMBERS
        most = settings.pop("div_max", math.inf)
        aggregators = settings.pop("aggregators", seed // 3 % 3)

        def make_hub() -> Hub:
            order: Any = [FirstIn(MEMBERS), BoundedDelay(40, at_once=MEMBERS)][seed % 2]
            aggregation = Aggregation(aggregators) if aggregators else None
            copies = Divergence(most, 0.1, momentum)
            return Hub(when=when, order=order, aggregation=aggregation, copies=copies, payload_s=5.0)

        conditions = Conditions(
            members=MEMBERS,
            compute_s=lambda member, task: 0.2 + 0.2 * uniform(seed, member, task),
            hub_rate=400.0,
            rates=lambda member: (400.0, 400.0),
            latency_s=0.005,
            seed=seed,
            **settings,
        )
        models = self.models
        self.run = ReplicatedHub(
            make_hub,
            lambda: Standby(Mean(), isinstance(when, Each)),
            conditions,
            each(self.learn),
            (models[0].site(), models[1].site()),
            failures,
        )

    def learn(self, member: int, action: Compute, model: Any) -> tuple[Offer, Any]:
        number = action.task.number
        if action.counted:
            self.told[member].add(self.before[member])
        self.before[member] = number
        found = value(member, number)
        return Offer(number, 50, float(np.linalg.norm(found))), found

    def check(self, seed: int) -> None:
        run, model = self.run, self.models[self.run.active]
        counted = [task for step in model.log for task in step.contributions]
        assert max(Counter(counted).values(), default=1) == 1, f"seed {seed}: a contribution counts twice"
        assert [step.version for step in model.log] == list(range(1, run.hub.version + 1)), f"seed {seed}"
        replayed = Model()
        for step in model.log:
            replayed.apply(step)
            count = 1 if isinstance(run.hub.when, Each) else len(step.contributions)
            parts = sum(value(*task) for task in step.contributions)
            np.testing.assert_allclose(step.update * count, parts, rtol=1e-9, atol=1e-12)
        assert replayed.weights.tobytes() == model.weights.tobytes(), f"seed {seed}: not the log's replay"


@pytest.mark.parametrize("seed", range(9))
def test_a_standby_has_the_same_bits(seed: int) -> None:
    case = Run(seed, Failures())
    case.run.until(updates=80)
    case.check(seed)
    first, second = case.models
    common = min(len(first.log), len(second.log))
    assert common >= 70, f"seed {seed}: the standby is at {len(second.log)}"
    for one, other in zip(first.log, second.log, strict=False):
        assert one.update.tobytes() == other.update.tobytes() and one.contributions == other.contributions
    assert case.run.state_bytes == 0


@pytest.mark.parametrize("block", [0, 1, *(pytest.param(n, marks=pytest.mark.soak) for n in range(2, 8))])
def test_whatever_is_killed_nothing_counts_twice_and_training_goes_on(block: int) -> None:
    for seed in range(50 * block, 50 * (block + 1)):
        failures = Failures(kills=0.3, notice_s=0.3, back_s=0.3, stall_s=3.0)
        case = Run(seed, failures, cuts=0.1, away_s=0.3, crashes=0.5)
        case.run.until(updates=30, seconds=400.0)
        case.check(seed)
        assert len(case.run.steps) >= 30, f"seed {seed}: it hangs at {case.run.now} s, {case.run.kills} kills"


@pytest.mark.parametrize("seed", range(6))
def test_a_hub_is_killed_fifty_times_and_nothing_that_was_counted_is_lost(seed: int) -> None:
    """No member forgets anything: so all that a worker was told to count is in the model, or on its way."""
    case = Run(seed, Failures(kills=1.0, notice_s=0.3, back_s=0.3))
    while case.run.kills < 50:
        case.run.until(seconds=case.run.now + 5.0)
        assert case.run.now < 2000, f"seed {seed}: it hangs after {case.run.kills} kills"
    case.check(seed)
    counted = {task for step in case.models[case.run.active].log for task in step.contributions}
    for number, member in enumerate(case.run._members):
        worker = member.worker
        waiting = {*worker._kept, *(one.task.number for one in worker._again)}
        batch = {task for _, task in [pair for pair in case.run.hub._batch.tasks if pair[0] == number]}
        for told in case.told[number]:
            assert (number, told) in counted or told in waiting | batch, f"seed {seed}: {number}, {told}"


def test_the_log_is_a_fiftieth_of_what_the_hub_sends() -> None:
    """Heads are 48 bytes: with models of 100 KB that is less than a thousandth."""
    case = Run(0, Failures())
    case.run.until(updates=100)
    assert case.run.log_bytes / len(case.run.steps) < 0.02 * 100_000
    assert case.run.copy_bytes >= 50 * 90


@pytest.mark.parametrize("seed", range(6))
def test_models_are_never_farther_apart_than_the_bound(seed: int) -> None:
    """At each commit of the hub: against what the standby can have, of all whose copies it holds."""
    far: dict[float, list[float]] = {}
    for most in (0.02, 1e9):
        case = Run(seed, Failures(), div_max=most, aggregators=0, momentum=0.0)
        run, distances = case.run, []
        standby = run.standby
        assert standby is not None
        for updates in range(1, 60):
            run.until(updates=updates)
            shadow = Model(0.0)
            for step in case.models[0].log:
                if _has(standby, step):
                    shadow.apply(step)
            distances.append(float(np.linalg.norm(shadow.weights - case.models[0].weights)))
        far[most] = distances
    assert max(far[0.02]) <= 0.02 < max(far[1e9])


def _has(standby: Standby, step: Step) -> bool:
    return step.version <= standby.version or all(unit.key in standby._copies for unit in step.units)


def test_the_bound_is_that_of_momentum() -> None:
    rule = Divergence(10.0, lr=0.5, momentum=0.9)
    assert not rule.granted((1, 1), 2.0)
    assert rule.bound() == pytest.approx(1.0)
    assert not rule.granted((2, 1), 2.0)
    assert rule.bound() == pytest.approx(1.0 * 1.9 + 1.0)
    rule.held([(1, 1)])
    assert rule.bound() == pytest.approx(0.9 * 1.0 + 1.0)
    assert rule.granted((3, 1), 40.0) and (3, 1) not in rule._missing


@pytest.mark.parametrize("norm", [math.nan, math.inf])
def test_what_has_no_length_goes_first(norm: float) -> None:
    assert Divergence(10.0).granted((1, 1), norm)


def entry(version: int, *tasks: tuple[int, int]) -> Entry:
    return Entry(version, tuple(Unit((task,), None, False, 0, 1.0, 1.0, 0) for task in tasks))


def copy(member: int, number: int) -> Copy:
    key = member, number
    return Copy((key,), None, Payload(number, value(*key)), (0,), (Offer(number, 8),))


def test_entries_are_applied_in_order_and_once_each() -> None:
    standby = Standby(Mean(), per_contribution=True)
    standby.handle(entry(2, (2, 1)))
    standby._entries.clear()
    for message in (entry(1, (1, 1)), entry(2, (2, 1)), copy(2, 1)):
        standby.handle(message)
    assert standby.poll() is None  # the copy for the first is not there
    assert standby.handle(copy(1, 1))
    found = [standby.poll(), standby.poll(), standby.poll()]
    assert [one[0].contributions if one else None for one in found] == [((1, 1),), ((2, 1),), None]
    assert not standby.handle(copy(1, 1)) and not standby.handle(entry(2, (2, 1)))


def test_the_next_hub_counts_what_the_standby_had_and_knows_what_was_counted() -> None:
    standby, hub = Standby(Mean(), per_contribution=True), Hub(order=FirstIn(9))
    for message in (entry(1, (1, 1)), copy(1, 1), copy(1, 2), copy(3, 5)):
        standby.handle(message)
    assert standby.poll() is not None
    standby.take_over(hub, 0.0)
    steps = []
    while (action := hub.poll()) is not None:
        steps += [action.contributions] if isinstance(action, Step) else []
    assert steps == [((1, 2),), ((3, 5),)] and hub.version == 3
    assert hub.has_counted((1, 1)) and not hub.has_counted((1, 3))


def test_a_rule_that_is_no_sum_has_no_standby() -> None:
    with pytest.raises(UsageError, match="a rule that is a sum"):
        Standby(Krum(1), per_contribution=False)
