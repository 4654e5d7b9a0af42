"""Aggregators on a virtual network: what they add up counts once, whatever breaks."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from tweed.aggregate import All, Cache, CommitRule, Each, Krum, Quorum, Reason
from tweed.collective import Hub as HubRank
from tweed.compress import LocalResidual, RandomTensors
from tweed.errors import StrategyError, UsageError
from tweed.hub.machine import Grant, Hub, Offer, Outcome, Payload, Ready, Step, Task, Worker
from tweed.hub.machine.actions import Distrust, Tell
from tweed.hub.machine.aggregator import Aggregator
from tweed.hub.machine.member import Phase
from tweed.hub.machine.model_source import HandOver, ModelSource
from tweed.hub.machine.open_groups import Aggregation
from tweed.hub.machine.worker import Compute
from tweed.hub.wire.messages import CancelGroup, Gather, ModelRequest, OutcomeReason, Sum
from tweed.order import BoundedDelay, FirstIn
from tweed.rng import uniform
from tweed.simulate.hub import Conditions, VirtualHub, each
from tweed.strategy import Strategy

MEMBERS = 12
WHENS: list[CommitRule] = [Each(), Cache(5), Quorum(4), Quorum(5, within_s=0.5), All()]


def value(member: int, task: int) -> np.ndarray:
    """Whose it is and for which task; whole numbers, so that any order of the sum gives the same."""
    return np.array([2.0**member, float(task)])


class Run:
    """A hub with aggregators, and what its updates came to."""

    def __init__(self, hub: Hub, conditions: Conditions, numbytes: int = 100, model_bytes: int = 20) -> None:
        self.updates: list[Step] = []
        self.numbytes, self.model_bytes = numbytes, model_bytes
        self.virtual = VirtualHub(hub, conditions, each(self.learn), self.apply)

    def learn(self, member: int, action: Compute, model: Any) -> tuple[Offer, Any]:
        return Offer(action.task.number, self.numbytes), value(member, action.task.number)

    def apply(self, step: Step | None) -> tuple[Any, int]:
        self.updates += [step] if step is not None else []
        return None, self.model_bytes

    def check(self, seed: int) -> None:
        counted = [task for step in self.virtual.steps for task in step]
        assert max(Counter(counted).values(), default=1) == 1, f"seed {seed}: a contribution counts twice"
        for step in self.updates:
            parts = sum(value(*task) for task in step.contributions)
            whole = 1 if isinstance(self.virtual.hub.when, Each) else len(step.contributions)
            np.testing.assert_allclose(step.update * whole, parts, rtol=1e-12, err_msg=f"seed {seed}")
            believed = sorted(one.sender for one in step.verdicts if one.weight > 0)
            assert believed == sorted(member for member, _ in step.contributions), f"seed {seed}"
        order = self.virtual.hub.order
        if isinstance(order, BoundedDelay) and isinstance(self.virtual.hub.when, Each):
            assert max(self.virtual.delays, default=0) <= order.most, f"seed {seed}"


def conditions(seed: int, **settings: Any) -> Conditions:
    return Conditions(
        members=MEMBERS,
        compute_s=lambda member, task: 0.2 + 0.3 * uniform(seed, member, task),
        hub_rate=400.0,
        rates=lambda member: (400.0, 400.0) if member % 3 else (100.0, 100.0),
        latency_s=0.005,
        seed=seed,
        **settings,
    )


def hub(seed: int = 0, **settings: Any) -> Hub:
    order: Any = [FirstIn(MEMBERS), BoundedDelay(30, at_once=MEMBERS)][seed % 2]
    given = {"when": WHENS[seed // 2 % len(WHENS)], "order": order, "payload_s": [4.0, 15.0][seed // 10 % 2]}
    return Hub(aggregation=Aggregation(most=1 + seed % 4), **{**given, **settings})


@pytest.mark.parametrize("block", range(10))
def test_whatever_breaks_what_is_in_a_sum_counts_once_and_training_goes_on(block: int) -> None:
    for seed in range(40 * block, 40 * (block + 1)):
        run = Run(hub(seed), conditions(seed, cuts=0.2, away_s=0.3, crashes=0.5))
        run.virtual.until(updates=15, seconds=500.0)
        run.check(seed)
        assert len(run.virtual.steps) == 15, f"seed {seed}: it hangs at {run.virtual.now} s"


def big(most: int, when: CommitRule, seed: int = 1, model_bytes: int = 1, **settings: Any) -> Run:
    """12 members alike, and payloads that fill the hub's link."""
    alike = Conditions(
        members=MEMBERS,
        compute_s=lambda member, task: 1.0 + uniform(seed, member, task),
        hub_rate=100.0,
        rates=lambda member: (100.0, 100.0),
        latency_s=0.001,
        seed=seed,
        **settings,
    )
    aggregation = Aggregation(most) if most else None
    hub = Hub(aggregation=aggregation, when=when, order=BoundedDelay(60, at_once=MEMBERS))
    return Run(hub, alike, 40, model_bytes)


@pytest.mark.parametrize("when", [Each(), All()], ids=repr)
def test_the_hub_receives_less_and_more_contributions_count(when: CommitRule) -> None:
    direct, with_sums = big(0, when), big(4, when)
    for run in (direct, with_sums):
        run.virtual.until(seconds=200.0)
        run.check(0)
    counted = [len(run.virtual.delays) for run in (direct, with_sums)]
    assert counted[1] > 1.15 * counted[0]
    assert with_sums.virtual.hub_bytes < 0.85 * 40 * counted[1]
    assert direct.virtual.hub_bytes >= 40 * counted[0]


@pytest.mark.parametrize(("when", "share"), [(Each(), 0.97), (All(), 0.6)], ids=repr)
def test_members_hand_models_to_each_other_and_the_hub_sends_less(when: CommitRule, share: float) -> None:
    """With `Each` few members get a task at the same time."""
    runs = []
    for most in (0, 4):
        run = big(most, when, model_bytes=40)
        run.virtual.until(seconds=200.0)
        run.check(0)
        runs.append(run.virtual)
    direct, ours = (run.model_bytes / max(1, len(run.delays)) for run in runs)
    assert runs[0].held_bytes == 0 < runs[1].held_bytes
    assert ours < share * direct and len(runs[1].delays) > len(runs[0].delays)


def test_a_holder_hands_over_what_it_has_and_says_what_it_has_not() -> None:
    model_source = ModelSource()
    model_source.asked(1, 3)
    assert model_source.poll() is None  # that may be on its way
    model_source.holds(3, "third")
    assert model_source.poll() == HandOver(1, 3, "third")
    model_source.asked(2, 4)
    model_source.holds(5, "fifth")
    assert model_source.poll() == HandOver(2, 4, None, False)
    model_source.asked(2, 3)
    assert model_source.poll() == HandOver(2, 3, "third")
    model_source.holds(6, "sixth")
    model_source.asked(2, 3)
    assert model_source.poll() == HandOver(2, 3, None, False)


def test_a_worker_whose_holder_has_nothing_asks_the_hub() -> None:
    worker = Worker()
    worker.handle(Task(1, 5, via=9))
    assert worker.poll() == ModelRequest(5, 9) and worker.poll() is None
    worker.lost()
    assert worker.poll() == Ready(0)
    worker.handle(Task(1, 6))
    assert worker.poll() == Compute(Task(1, 6))


def test_a_worker_takes_the_model_of_whoever_is_first() -> None:
    worker = Worker()
    worker.handle(Task(1, 5, via=9))
    worker.handle(Task(1, 6))
    worker.fetched()
    assert [worker.poll(), worker.poll(), worker.poll()] == [ModelRequest(5, 9), Compute(Task(1, 6)), None]


def test_control_messages_are_a_thousandth_of_megabyte_payloads() -> None:
    run = big(4, Each())
    run.virtual.until(seconds=200.0)
    assert run.virtual.sums > 30
    assert run.virtual.control_bytes < 1e-3 * 1e6 * run.virtual.payload_bytes / run.numbytes


def test_after_a_step_in_bandwidth_the_next_plans_avoid_the_host() -> None:
    """Members 0 to 2 have a twentieth from 100 s on."""

    def share(node: int, now: float) -> tuple[float, float]:
        return (1.0, 100.0) if now < 100 else (0.05 if 0 <= node < 3 else 1.0, math.inf)

    run = big(4, Each(), shares=share)
    aggregators: list[tuple[float, int]] = []
    aggregation = run.virtual.hub.aggregation
    assert aggregation is not None
    opened = aggregation.open

    def noted(aggregator: int, tasks: Any, now: float) -> Any:
        aggregators.append((now, aggregator))
        return opened(aggregator, tasks, now)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Aggregation, "open", lambda self, *args: noted(*args))
        run.virtual.until(seconds=300.0)
    assert any(one < 3 for now, one in aggregators if now < 100)
    late = [one for now, one in aggregators if now > 120]
    assert len(late) > 3 and not any(one < 3 for one in late)


@pytest.mark.parametrize("seed", range(4))
def test_no_delay_is_above_the_bound_and_what_is_dropped_moves_no_byte(seed: int) -> None:
    """A bound of 8 among 12 members, a third of them slow."""
    run = Run(Hub(aggregation=Aggregation(3), order=BoundedDelay(8, at_once=MEMBERS)), conditions(seed))
    run.virtual.until(seconds=80.0)
    run.check(seed)
    dropped = sum(one.worker.outcomes.get("LATE", 0) for one in run.virtual._members)
    counted = sum(one.worker.outcomes.get("COUNTED", 0) for one in run.virtual._members)
    assert dropped > 20 and max(run.virtual.delays) <= 8
    assert run.virtual.payload_bytes <= run.numbytes * (counted + 2 * MEMBERS)


@pytest.mark.parametrize("seed", range(3))
def test_delays_are_smaller_than_those_of_a_plain_hub(seed: int) -> None:
    """Where members pause at random and a tenth is four times slower: C3."""

    def compute(member: int, task: int) -> float:
        return (1.0 + uniform(seed, member, task)) * (4.0 if member == 0 else 1.0)

    delays = []
    for most, order in ((0, FirstIn(MEMBERS)), (4, BoundedDelay(16, at_once=MEMBERS))):
        given = Conditions(
            MEMBERS, compute, hub_rate=100.0, rates=lambda member: (100.0, 100.0), latency_s=0.001, seed=seed
        )
        run = Run(Hub(aggregation=Aggregation(most) if most else None, order=order), given, 40, 1)
        run.virtual.until(seconds=300.0)
        run.check(seed)
        delays.append(run.virtual.delays)
    plain, ours = delays
    print(
        f"mean {np.mean(plain):.2f} and {np.mean(ours):.2f}, std {np.std(plain):.2f} and {np.std(ours):.2f}"
    )
    assert np.mean(ours) < np.mean(plain) and np.std(ours) < np.std(plain)


def test_what_is_not_sent_cannot_be_in_a_sum() -> None:
    with pytest.raises(StrategyError, match="in a sum it would be zero"):
        Strategy(
            "difference", compress=LocalResidual(RandomTensors(0.2)), collective=HubRank(0, aggregators=2)
        )


def test_a_rule_that_must_see_each_alone_has_no_aggregators() -> None:
    with pytest.raises(UsageError, match=r"Krum\(f=1\) must see each contribution alone"):
        Hub(Krum(1), Quorum(5), aggregation=Aggregation(2))


class Direct:
    """A hub with one aggregator that is talked to message by message: members 1 and 2 send via member 9."""

    def __init__(self) -> None:
        self.hub = Hub(order=FirstIn(9), aggregation=Aggregation(1), payload_s=10.0)
        for member in (1, 2, 9):
            self.say(member, Ready())
        for member in (1, 2):
            self.hub._members.move(self.hub.members[member], Phase.OFFERED)
            self.hub.members[member].offer = Offer(1, 8)
        self.hub._schedule.state = FirstIn(9).start()
        assert self.hub.aggregation is not None
        self.group = self.hub.aggregation.open(9, ((1, 1), (2, 1)), 0.0)
        for member in (1, 2):
            self.hub.grants.grant(member, 9, 0.0)
        self.actions()

    def say(self, member: int, message: Any, now: float = 1.0) -> list[Any]:
        self.hub.handle(member, message, now)
        return self.actions()

    def actions(self) -> list[Any]:
        found = []
        while (action := self.hub.poll()) is not None:
            found.append(action)
        return found

    def sum(self, *tasks: tuple[int, int], group: int = 1) -> Sum:
        return Sum(group, tasks, sum(value(*task) for task in tasks), (), (0.1,) * len(tasks))


def told(actions: list[Any], member: int) -> list[Any]:
    return [one.message for one in actions if isinstance(one, Tell) and one.member == member]


def test_a_sum_is_one_commit_of_its_parts() -> None:
    found = Direct().say(9, Direct().sum((1, 1), (2, 1)))
    [step] = [one for one in found if isinstance(one, Step)]
    assert step.contributions == ((1, 1), (2, 1)) and step.version == 1
    np.testing.assert_array_equal(step.update, value(1, 1) + value(2, 1))
    assert told(found, 1) == [Outcome(1, OutcomeReason.COUNTED), Task(2, 1)]


@pytest.mark.parametrize(
    ("sum_", "norms"),
    [
        (np.full(2, 1e3), (1.0, 2.0)),
        (np.array([math.nan, 0]), (1.0, 2.0)),
        (np.array([0, math.inf]), (1e9, 1e9)),
    ],
    ids=["too long", "no number", "not finite"],
)
def test_a_sum_that_is_longer_than_its_parts_is_refused_and_its_aggregator_not_asked_again(
    sum_: np.ndarray, norms: tuple[float, float]
) -> None:
    direct = Direct()
    for member, norm in zip((1, 2), norms, strict=True):
        direct.hub.members[member].offer = Offer(1, 8, norm)
    found = direct.say(9, Sum(1, ((1, 1), (2, 1)), sum_, (), (0.1, 0.1)))
    assert told(found, 1) == told(found, 2) == [Grant(1)] and told(found, 9) == [CancelGroup(1)]
    assert [one.member for one in found if isinstance(one, Distrust)] == [9]
    aggregation = direct.hub.aggregation
    assert aggregation is not None and list(aggregation._free([8, 9], 1e9)) == [8]
    direct.say(9, Sum(1, ((1, 1), (2, 1)), np.ones(2), (), (0.1, 0.1)))
    assert direct.hub.version == 0 and not aggregation.rates.hub.rate


def test_a_sum_of_parts_of_opposite_signs_or_of_one_is_taken() -> None:
    direct, parts = Direct(), [np.array([3.0, 4.0]), np.array([-3.0, -4.0])]
    for member in (1, 2):
        direct.hub.members[member].offer = Offer(1, 8, 5.0)
    found = direct.say(9, Sum(1, ((1, 1), (2, 1)), sum(parts), (), (0.1, 0.1)))
    assert [one.contributions for one in found if isinstance(one, Step)] == [((1, 1), (2, 1))]


def test_who_is_not_in_the_sum_sends_directly() -> None:
    direct = Direct()
    found = direct.say(9, direct.sum((2, 1)))
    assert told(found, 1) == [Grant(1)] and Outcome(1, OutcomeReason.COUNTED) in told(found, 2)
    found = direct.say(1, Payload(1, value(1, 1)))
    assert [one.contributions for one in found if isinstance(one, Step)] == [((1, 1),)]


def test_an_aggregator_that_is_lost_counts_for_nothing_and_its_members_send_again() -> None:
    direct = Direct()
    direct.hub.left(9, 2.0)
    found = direct.actions()
    assert told(found, 1) == told(found, 2) == [Grant(1)]
    assert direct.say(9, direct.sum((1, 1), (2, 1))) == []
    assert direct.hub.version == 0


def test_a_member_that_forgets_makes_its_group_void() -> None:
    direct = Direct()
    found = direct.say(1, Ready(0))
    assert told(found, 1) == [Outcome(1, OutcomeReason.EXPIRED), Task(2, 0)]
    assert told(found, 2) == [Grant(1)] and told(found, 9) == [CancelGroup(1)]
    assert direct.say(9, direct.sum((1, 1), (2, 1))) == []


@pytest.mark.parametrize(
    "tasks, group, sender",
    [(((1, 1), (1, 1)), 1, 9), (((1, 1), (3, 1)), 1, 9), (((1, 1),), 2, 9), (((1, 1),), 1, 2), ((), 1, 9)],
)
def test_a_sum_that_cannot_be_counts_for_nothing(tasks: Any, group: int, sender: int) -> None:
    direct = Direct()
    assert not any(isinstance(one, Step) for one in direct.say(sender, direct.sum(*tasks, group=group)))
    assert direct.hub.version == 0


def test_what_is_left_out_of_a_sum_has_a_verdict() -> None:
    direct = Direct()
    found = direct.say(9, Sum(1, ((1, 1),), value(1, 1), ((2, 1),), (0.1,)))
    [step] = [one for one in found if isinstance(one, Step)]
    assert {one.sender: (one.weight, one.reason) for one in step.verdicts} == {
        1: (1.0, Reason.EQUAL),
        2: (0.0, Reason.NOT_FINITE),
    }
    np.testing.assert_array_equal(step.update, value(1, 1))


def test_an_aggregator_adds_up_in_the_order_of_tasks_and_leaves_out_what_is_not_finite() -> None:
    aggregator = Aggregator()
    aggregator.handle(Gather(4, ((1, 1), (2, 1), (3, 1)), 5.0), 0.0)
    aggregator.arrived(3, Payload(1, np.array([1.0])), 1.0)
    aggregator.arrived(7, Payload(1, np.array([1e9])), 1.5)  # in no group
    aggregator.arrived(2, Payload(1, np.array([math.nan])), 2.0)
    assert aggregator.poll() is None
    aggregator.arrived(1, Payload(1, np.array([2.0])), 3.0)
    assert aggregator.poll() == Sum(4, ((1, 1), (3, 1)), np.array([3.0]), ((2, 1),), (3.0, 1.0))
    aggregator.arrived(1, Payload(1, np.array([2.0])), 4.0)
    assert aggregator.poll() is None and aggregator.deadline() == math.inf


def test_an_aggregator_passes_on_what_is_there_when_time_is_over() -> None:
    aggregator = Aggregator()
    aggregator.handle(Gather(1, ((1, 1), (2, 1)), 5.0), 0.0)
    assert aggregator.deadline() == math.inf
    aggregator.arrived(2, Payload(1, np.ones(1)), 1.0)
    assert aggregator.deadline() == 5.0
    aggregator.passed(5.0)
    found = aggregator.poll()
    assert found is not None and found.tasks == ((2, 1),)


def test_an_aggregator_forgets_what_is_void() -> None:
    aggregator = Aggregator()
    for group in (1, 2):
        aggregator.handle(Gather(group, ((group, 1),), 5.0), 0.0)
    aggregator.handle(CancelGroup(1), 0.5)
    aggregator.arrived(1, Payload(1, np.ones(1)), 1.0)
    aggregator.unlinked()
    aggregator.arrived(2, Payload(1, np.ones(1)), 1.0)
    assert aggregator.poll() is None


@pytest.mark.parametrize("took_s", [(0.0,), (-1.0,), (math.nan,), (1e9,), (math.inf,), ()], ids=str)
def test_times_that_an_aggregator_makes_up_are_not_believed(took_s: tuple[float, ...]) -> None:
    hub = Hub(aggregation=Aggregation(most=1), order=FirstIn(9))
    for member in range(2):
        hub.handle(member, Ready(), 0.0)
    hub.handle(0, Offer(1, 8), 0.0)
    assert hub.aggregation is not None
    group = hub.aggregation.open(1, ((0, 1),), 0.0)
    hub.handle(1, Sum(group.number, ((0, 1),), np.ones(1), took_s=took_s), 1.0)
    rates = hub.aggregation.rates
    assert hub.version == 1 and not rates.up and not rates.hub.rate


def test_a_group_does_not_wait_for_a_member_whose_link_has_ended() -> None:
    direct = Direct()
    direct.hub.left(1, 2.0)
    found = direct.actions()
    assert told(found, 2) == [Grant(1)] and told(found, 9) == [CancelGroup(1)] and told(found, 1) == []
    assert told(direct.say(1, Offer(1, 8)), 1) == [Grant(1)]
