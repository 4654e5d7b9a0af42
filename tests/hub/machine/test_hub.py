"""The hub's machines under faults: each contribution counts once, and nobody waits for ever."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from tweed.aggregate import (
    All,
    Cache,
    CommitRule,
    Each,
    FLTrust,
    Krum,
    Mean,
    Median,
    NearestNeighbourMixing,
    Quorum,
    Round,
    Weighted,
)
from tweed.errors import UsageError
from tweed.hub.machine import Grant, Hub, Leave, Offer, Outcome, Payload, Ready, Step, Task
from tweed.hub.machine.actions import Abandon, Ask, Tell
from tweed.hub.machine.member import Phase
from tweed.hub.machine.worker import Compute
from tweed.hub.wire.messages import OutcomeReason
from tweed.order import BoundedDelay, FirstIn, NewestFirst, ShortestFirst
from tweed.rng import uniform
from tweed.simulate.hub import Conditions, VirtualHub, each

WHENS: list[CommitRule] = [Each(), Cache(3), Quorum(3), Quorum(4, within_s=0.5), All(), Round(4)]
RULES: list[Any] = [Mean(), Krum(), Weighted(), NearestNeighbourMixing(Median(), 0.2)]
ORDERS: list[Any] = [FirstIn(), NewestFirst(3), ShortestFirst(2), BoundedDelay(6, at_once=2)]


def learn(member: int, action: Compute, model: Any) -> tuple[Offer, Any]:
    """The value says whose it is, and for which task."""
    task = action.task
    value = np.array([1000.0 * member + task.number])
    return Offer(task.number, 1 + (7 * member + task.number) % 13), value


def nothing(step: Step | None) -> tuple[None, int]:
    """No model, of five bytes."""
    return None, 5


def conditions(seed: int, **settings: Any) -> Conditions:
    return Conditions(
        members=6,
        compute_s=lambda member, task: (1 + member) * 0.1 * (0.5 + uniform(seed, member, task)),
        hub_rate=100.0,
        rates=lambda member: (40.0, 40.0),
        latency_s=0.01,
        seed=seed,
        **settings,
    )


def case(seed: int) -> Hub:
    return Hub(
        RULES[seed // 5 % len(RULES)],
        when=WHENS[seed % len(WHENS)],
        order=ORDERS[seed // len(WHENS) % len(ORDERS)],
        tasks=[None, 2, 5][seed // 20 % 3],
        task_s=[1.0, 100.0][seed // 60 % 2],
        payload_s=[0.3, 5.0][seed // 120 % 2],
    )


def check(run: VirtualHub) -> None:
    counted = [one for step in run.steps for one in step]
    assert max(Counter(counted).values(), default=1) == 1, "a contribution counts twice"
    assert run.hub.version == len(run.steps)
    assert not set(counted) & set(run.abandoned)
    assert all(len({member for member, _ in step}) == len(step) for step in run.steps)
    phases = Counter(one.phase for one in run.hub.members.values())
    assert phases[Phase.GRANTED] <= run.hub.order.at_once  # type: ignore[attr-defined]
    under_way = phases[Phase.OPEN] + phases[Phase.OFFERED] + phases[Phase.GRANTED]
    assert under_way <= (run.hub.tasks or 6)
    if isinstance(run.hub.order, BoundedDelay) and isinstance(run.hub.when, Each):
        assert max(run.delays, default=0) <= run.hub.order.most


@pytest.mark.parametrize("block", [0, 1, *(pytest.param(n, marks=pytest.mark.soak) for n in range(2, 10))])
def test_whatever_breaks_each_contribution_counts_once_and_training_goes_on(block: int) -> None:
    for seed in range(40 * block, 40 * (block + 1)):
        run = VirtualHub(
            case(seed),
            conditions(seed, cuts=0.5, away_s=0.3, crashes=0.3, answer_s=0.1 * (seed % 3)),
            each(learn),
            nothing,
        )
        for updates in range(4, 30, 4):
            run.until(updates=updates, seconds=1000.0)
            check(run)
        assert len(run.steps) >= 28, f"seed {seed}: it hangs at {run.now} s after {len(run.steps)} updates"


@pytest.mark.parametrize("seed", range(0, 240, 7))
def test_what_a_member_is_told_to_count_is_in_an_update(seed: int) -> None:
    run = VirtualHub(case(seed), conditions(seed, cuts=0.3, away_s=0.2), each(learn), nothing)
    run.until(updates=40, seconds=500.0)
    counted = Counter(member for step in [*run.steps, run.abandoned] for member, _ in step)
    batch = Counter(member for member, one in run.hub.members.items() if one.in_batch)
    for number, member in enumerate(run._members):
        told = member.worker.outcomes.get("COUNTED", 0)
        # the last outcome may be on its way
        assert 0 <= counted[number] + batch[number] - told <= 1, f"seed {seed}, member {number}"


@pytest.mark.parametrize("seed", range(5))
def test_a_run_is_replayed_by_its_seed(seed: int) -> None:
    def steps(seed: int) -> Any:
        run = VirtualHub(case(7 * seed), conditions(seed, cuts=0.5, crashes=0.5), each(learn), nothing)
        run.until(updates=20, seconds=500.0)
        return run.steps, run.now, run.delays

    assert steps(seed) == steps(seed) != steps(seed + 1)


def test_a_slow_member_is_not_dropped_for_ever() -> None:
    slow = Conditions(
        members=4, compute_s=lambda member, task: 5.0 if member == 0 else 0.1 + 0.01 * member, hub_rate=1e3
    )
    for patience, least in ((10**9, 0), (2, 3)):
        run = VirtualHub(Hub(order=BoundedDelay(3), patience=patience), slow, each(learn), nothing)
        run.until(seconds=100.0)
        mine = sum(member == 0 for step in run.steps for member, _ in step)
        assert max(run.delays) <= 3
        assert (mine == 0) if not least else mine >= least


def test_in_step_it_is_synchronous_training() -> None:
    model = np.zeros(3)
    targets = np.arange(12.0).reshape(4, 3)

    def gradient(member: int, action: Compute, model: Any) -> tuple[Offer, Any]:
        return Offer(action.task.number, 24), model - targets[member]

    def apply(step: Step | None) -> Any:
        nonlocal model
        if step is not None:
            model = model - 0.25 * step.update
        return model, 24

    four = Conditions(members=4, compute_s=lambda member, task: 1 + member, latency_s=0.1)
    run = VirtualHub(Hub(when=All(), order=FirstIn(4)), four, each(gradient), apply)
    run.until(updates=9)
    plain = np.zeros(3)
    for _ in range(9):
        plain = plain - 0.25 * (plain - targets.mean(axis=0))
    np.testing.assert_allclose(model, plain, rtol=1e-12)
    assert set(run.delays) == {0} and all(len(step) == 4 for step in run.steps)
    assert run.now == pytest.approx(0.1 + 9 * (4 + 0.4), rel=1e-6)  # the slowest, and four latencies


@pytest.mark.parametrize("rule", [Krum(1), Median(), Weighted()], ids=repr)
def test_a_rule_asks_and_leaves_out_what_is_hostile(rule: Any) -> None:
    def send(member: int, action: Compute, model: Any) -> tuple[Offer, Any]:
        bad = {0: np.full(4, math.nan), 1: np.zeros(7)}
        return Offer(action.task.number, 32), bad.get(member, np.full(4, 1.0 + member / 100))

    updates = []

    def apply(step: Step | None) -> tuple[None, int]:
        updates.extend([step] if step else [])
        return nothing(step)

    run = VirtualHub(
        Hub(rule, All(), FirstIn(9)),
        Conditions(members=6, compute_s=lambda member, task: 1.0),
        each(send),
        apply,
    )
    run.until(updates=3)
    for step in updates:
        assert np.all((step.update > 0.9) & (step.update < 1.1))
        weights = {verdict.sender: verdict.weight for verdict in step.verdicts}
        assert weights[0] == weights[1] == 0 < sum(weights.values())


def test_in_rounds_so_many_get_a_task_on_one_version_and_all_have_turns() -> None:
    versions: dict[int, set[int]] = {}

    def look(member: int, action: Compute, model: Any) -> tuple[Offer, Any]:
        versions.setdefault(action.task.version, set()).add(member)
        return learn(member, action, model)

    ten = Conditions(members=10, compute_s=lambda member, task: 1.0 + member)
    run = VirtualHub(Hub(when=Round(4)), ten, each(look), nothing)
    run.until(updates=5)
    assert [len(step) for step in run.steps] == [4] * 5 and set(run.delays) == {0}
    assert all(len(versions[version]) == 4 for version in range(5))
    assert {member for step in run.steps for member, _ in step} == set(range(10))


def test_so_many_tasks_are_under_way_though_members_crash() -> None:
    most = 0

    def look(member: int, action: Compute, model: Any) -> tuple[Offer, Any]:
        nonlocal most
        phases = Counter(one.phase for one in run.hub.members.values())
        most = max(most, phases[Phase.OPEN] + phases[Phase.OFFERED] + phases[Phase.GRANTED])
        return Offer(action.task.number, 40), np.ones(1)

    many = Conditions(
        members=60,
        compute_s=lambda member, task: 0.5 + uniform(1, member, task),
        hub_rate=1000.0,
        rates=lambda member: (10.0, 100.0),
        cuts=0.1,
        crashes=0.5,
    )
    run = VirtualHub(Hub(when=Cache(7), order=FirstIn(7), tasks=7, task_s=20.0), many, each(look), nothing)
    run.until(updates=60, seconds=2000.0)
    assert len(run.steps) == 60 and most == 7


def test_a_round_that_is_too_small_for_the_rule_gets_more() -> None:
    five = Conditions(members=5, compute_s=lambda member, task: 1.0)
    run = VirtualHub(Hub(Krum(2), Round(2)), five, each(learn), nothing)
    run.until(updates=2, seconds=100.0)
    assert [len(step) for step in run.steps] == [5, 5]  # Krum(2) takes five


def test_a_rule_that_cannot_hold_waits_for_more() -> None:
    run = VirtualHub(
        Hub(Krum(2), Quorum(2, within_s=1.0)),
        Conditions(5, lambda member, task: 1.0 + member),
        each(learn),
        nothing,
    )
    run.until(updates=2)
    assert [len(step) for step in run.steps] == [5, 5]


class Direct:
    """A hub that is talked to message by message."""

    def __init__(self, **settings: Any) -> None:
        self.hub = Hub(**settings)

    def say(self, member: int, message: Any, now: float = 0.0) -> list[Any]:
        self.hub.handle(member, message, now)
        return self.actions()

    def actions(self) -> list[Any]:
        found = []
        while (action := self.hub.poll()) is not None:
            found.append(action)
        return found


def test_each_message_may_come_twice() -> None:
    hub, value = Direct(), np.ones(2)
    assert hub.say(3, Ready()) == [Tell(3, Task(1, 0))] == hub.say(3, Ready())
    assert hub.say(3, Offer(1, 8)) == [Tell(3, Grant(1))] == hub.say(3, Offer(1, 8))
    told, step, task = hub.say(3, Payload(1, value))
    assert told == Tell(3, Outcome(1, OutcomeReason.COUNTED)) and step.contributions == ((3, 1),)
    assert task == Tell(3, Task(2, 1))
    for message in (Payload(1, value), Offer(1, 8)):
        assert hub.say(3, message) == [told, task]
    assert hub.hub.version == 1


def test_nothing_counts_that_was_not_granted() -> None:
    hub = Direct(order=FirstIn())
    hub.say(1, Ready()), hub.say(2, Ready())
    assert hub.say(1, Payload(1, np.ones(1))) == [Tell(1, Outcome(1, OutcomeReason.NOT_GRANTED))]
    assert hub.say(2, Payload(9, np.ones(1))) == [Tell(2, Outcome(9, OutcomeReason.UNKNOWN))]
    assert hub.hub.version == 0


def test_a_lease_that_ends_gives_the_task_to_another() -> None:
    hub = Direct(tasks=1, task_s=10.0, payload_s=5.0)
    hub.say(1, Ready(), 0.0)
    assert hub.say(2, Ready(), 1.0) == []
    assert hub.hub.deadline() == 10.0
    hub.hub.passed(10.0)
    assert hub.actions() == [Tell(1, Outcome(1, OutcomeReason.EXPIRED)), Tell(2, Task(1, 0))]
    assert hub.say(2, Offer(1, 8), 11.0) == [Tell(2, Grant(1))]
    hub.hub.passed(16.0)
    assert hub.actions() == [Tell(2, Outcome(1, OutcomeReason.EXPIRED))]
    assert hub.say(2, Payload(1, np.ones(1)), 17.0) == [Tell(2, Outcome(1, OutcomeReason.EXPIRED))]


def test_a_member_that_has_forgotten_gets_another_task() -> None:
    hub = Direct(order=FirstIn())
    hub.say(1, Ready()), hub.say(1, Offer(1, 8)), hub.hub.left(1, 1.0)
    assert hub.say(1, Ready(0), 2.0) == [Tell(1, Outcome(1, OutcomeReason.EXPIRED)), Tell(1, Task(2, 0))]


def test_a_hub_that_has_forgotten_goes_on_with_the_members_numbers() -> None:
    assert Direct().say(1, Ready(41)) == [Tell(1, Task(42, 0))]


def asked() -> tuple[Direct, Any]:
    """A hub whose rule has asked about three contributions, and a payload that came meanwhile."""
    hub = Direct(aggregate=Krum(1), when=Quorum(3), order=FirstIn(9))
    for member in range(4):
        hub.say(member, Ready())
        hub.say(member, Offer(1, 8))
    found = [
        action for member in range(3) for action in hub.say(member, Payload(1, np.full(2, 1.0 + member)))
    ]
    [question] = [action.question for action in found if isinstance(action, Ask)]
    assert hub.say(3, Payload(1, np.full(2, 9.0))) == []
    assert hub.hub.members[3].phase is Phase.ARRIVED
    return hub, question.of_range()


def test_what_arrives_while_a_rule_asks_is_counted_one_by_one_after_the_step() -> None:
    """Each value is taken when the driver has taken the step before."""
    seen: list[int] = []
    version = 0

    def value(member: int, payload: Payload) -> Any:
        seen.append(version)
        return payload.value

    hub = Hub(FLTrust(), Each(), FirstIn(3), value=value)
    for member in range(3):
        hub.handle(member, Ready(), 0.0)
        hub.handle(member, Offer(1, 8), 0.0)
    for member in range(3):
        hub.handle(member, Payload(1, np.array([1.0, 0.0])), 0.0)
    steps: list[Step] = []
    while (action := hub.poll()) is not None:
        if isinstance(action, Ask):
            hub.answered(torch.tensor([2.0, 0.0]), 1.0)
        elif isinstance(action, Step):
            steps.append(action)
            version = action.version
    assert [len(step.contributions) for step in steps] == [1, 1, 1] and seen == [0, 1, 2]


def test_who_comes_and_goes_while_it_waits_gets_one_task() -> None:
    direct = Direct(when=Round(2))
    for member in range(4):
        direct.say(member, Ready())
    for _ in range(5):
        direct.hub.left(2, 0.0)
        direct.say(2, Ready())
    assert direct.hub._tasks.waiting == 2
    for member in (0, 1):
        direct.say(member, Offer(1, 8))
        direct.say(member, Payload(1, np.ones(1)))
    assert direct.hub.version == 1
    direct.say(2, Offer(1, 8))
    direct.say(2, Payload(1, np.ones(1)))
    direct.say(3, Leave())
    phases = {member: one.phase for member, one in direct.hub.members.items()}
    assert phases[2] is Phase.DONE and sorted(phases.values(), key=str).count(Phase.OPEN) == 1


def test_what_arrives_while_a_rule_asks_is_in_the_next_update() -> None:
    hub, answer = asked()
    hub.hub.answered(answer, 1.0)
    actions = hub.actions()
    [step] = [action for action in actions if isinstance(action, Step)]
    assert step.contributions == ((0, 1), (1, 1), (2, 1))
    assert Tell(3, Outcome(1, OutcomeReason.COUNTED)) in actions and hub.hub.members[3].in_batch


def test_who_forgets_while_a_rule_asks_counts_for_nothing() -> None:
    hub, answer = asked()
    assert hub.say(3, Ready(0)) == [Tell(3, Outcome(1, OutcomeReason.EXPIRED)), Tell(3, Task(2, 0))]
    hub.say(3, Offer(2, 8))
    hub.hub.answered(answer, 1.0)
    hub.actions()
    assert not hub.hub.members[3].in_batch


def test_numbers_that_a_member_makes_up_hold_nobody_up() -> None:
    hub = Direct(tasks=1)
    hub.say(1, Ready(), 0.0)
    assert hub.say(1, Ready(10), 1.0) == [Tell(1, Outcome(1, OutcomeReason.EXPIRED)), Tell(1, Task(11, 0))]
    hub.say(2, Ready(), 2.0)
    hub.hub.passed(hub.hub.deadline())
    hub.hub.passed(hub.hub.deadline())
    assert Tell(2, Task(1, 0)) in hub.actions()


@pytest.mark.parametrize("when", [All(), Quorum(2), Round(2)], ids=repr)
@pytest.mark.parametrize("over", [[], [Payload], [Offer]], ids=["forgets", "not granted", "absurd"])
def test_who_ends_tasks_and_asks_for_others_holds_nobody_up(when: CommitRule, over: list[Any]) -> None:
    """Two of three begin anew again and again, each while the other one has a task."""
    direct = Direct(when=when, task_s=10.0)
    for member in (1, 2, 0):
        direct.say(member, Ready())
    for tenth in range(300):
        now = tenth / 10
        for member in (1, 2):
            number = direct.hub.members[member].number
            for kind in over:
                direct.say(member, kind(number, -1), now)
            direct.say(member, Ready(number), now)
        if direct.hub.members[0].number == 1:
            direct.say(0, Offer(1, 8), now), direct.say(0, Payload(1, np.ones(1)), now)
        direct.hub.passed(now)
        direct.actions()
    assert direct.hub.version >= 1


def test_who_let_a_lease_end_is_waited_for_again_once_it_has_contributed() -> None:
    direct = Direct(when=All(), task_s=10.0)
    for member in (0, 1):
        direct.say(member, Ready())
    direct.hub.passed(10.0)
    for member in (0, 1):
        direct.say(member, Ready(1), 10.0)

    def contributes(member: int, number: int) -> list[Any]:
        direct.say(member, Offer(number, 8), 11.0)
        return direct.say(member, Payload(number, np.ones(1)), 11.0)

    def commits(found: list[Any]) -> list[Any]:
        return [one.contributions for one in found if isinstance(one, Step)]

    assert commits(contributes(0, 2)) == [((0, 2),)]
    assert commits(contributes(1, 2)) == []
    assert commits(contributes(0, 3)) == [((1, 2), (0, 3))]


def test_the_outcome_of_a_task_that_the_hub_has_forgotten_is_not_known() -> None:
    direct = Direct()
    for message in (Ready(), Offer(1, 8), Payload(1, np.ones(1))):
        direct.say(1, message)
    direct.say(1, Ready(7))
    assert Tell(1, Outcome(7, OutcomeReason.UNKNOWN)) in direct.say(1, Offer(7, 8))


@pytest.mark.parametrize("when", [Each(), Cache(3), Round(3)], ids=repr)
def test_a_flood_of_one_member_leaves_nothing_behind(when: CommitRule) -> None:
    direct = Direct(when=when, order=ShortestFirst())
    for member in range(3):
        direct.say(member, Ready())
    direct.say(0, Offer(1, 8)), direct.say(0, Payload(1, np.ones(1)))
    direct.say(1, Offer(1, 8))  # and does not send
    for now in range(2000):
        last = direct.hub.members[0].number
        for message in (Ready(last), Offer(last, now), Offer(last + 1, now), Leave()):
            direct.say(0, message, 1e-3 * now)
    hub = direct.hub
    kept: list[Any] = [
        hub._members._leases,
        hub._held,
        hub._released,
        hub._early,
        hub._tasks._idle,
        hub._tasks._after,
        hub._schedule.state.heap,
    ]
    assert sum(len(one) for one in kept) < 300


def test_a_member_that_is_linked_and_silent_is_not_waited_for() -> None:
    hub = Direct(when=All(), task_s=10.0)
    hub.say(1, Ready(), 0.0), hub.say(2, Ready(), 0.0)
    hub.say(1, Offer(1, 8), 1.0)
    assert not any(isinstance(action, Step) for action in hub.say(1, Payload(1, np.ones(1)), 2.0))
    hub.hub.passed(10.0)
    assert any(isinstance(action, Step) for action in hub.actions())


def test_too_few_for_a_rule_come_to_nothing_and_hold_nobody_up() -> None:
    hub = Direct(aggregate=Krum(1), when=Quorum(3), order=FirstIn(9))
    for member in range(3):
        hub.say(member, Ready())
    for member in range(2):
        hub.say(member, Offer(1, 8))
        assert not any(isinstance(one, Abandon) for one in hub.say(member, Payload(1, np.ones(1))))
    found = hub.say(2, Leave())
    assert Abandon(((0, 1), (1, 1)), "Krum(f=1) compares contributions, and there are 2") in found
    assert Tell(0, Task(2, 0)) in found and hub.hub.version == 0


def test_who_waits_for_a_commit_takes_nobodys_task() -> None:
    hub = Direct(when=Cache(3), order=FirstIn(9), tasks=2)
    for member in (1, 2, 3):
        hub.hub.expect(member)
    for member in (1, 2):
        hub.say(member, Ready())
        for message in (Offer(1, 8), Payload(1, np.ones(1)), Offer(2, 8)):
            hub.say(member, message)
    assert hub.say(3, Ready()) == [Tell(3, Task(1, 0))]
    hub.say(3, Offer(1, 8))
    assert any(isinstance(one, Step) for one in hub.say(3, Payload(1, np.ones(1))))


def test_a_hub_goes_on_from_its_state() -> None:
    hub, other = Direct(order=FirstIn()), Direct(order=FirstIn())
    for message in (Ready(), Offer(1, 8), Payload(1, np.ones(1))):
        hub.say(7, message)
    other.hub.load(hub.hub.state())
    assert other.say(7, Ready(0)) == [Tell(7, Task(3, 1))]


def test_who_is_expected_is_waited_for() -> None:
    hub = Direct(when=All())
    hub.hub.expect(1), hub.hub.expect(2)
    for message in (Ready(), Offer(1, 8), Payload(1, np.ones(1))):
        found = hub.say(1, message)
    assert not any(isinstance(one, Step) for one in found)
    hub.hub.left(2, 1.0)
    assert any(isinstance(one, Step) for one in hub.actions())


def test_who_is_dropped_gets_another_task_at_once() -> None:
    hub = Direct(order=BoundedDelay(0))
    for member in (1, 2):
        hub.say(member, Ready())
    hub.say(1, Offer(1, 8))
    hub.say(1, Payload(1, np.ones(1)))
    assert hub.say(2, Offer(1, 8)) == [Tell(2, Outcome(1, OutcomeReason.LATE)), Tell(2, Task(2, 1))]


@pytest.mark.parametrize(
    "offer", [Offer(1, 8, 1.0, math.nan), Offer(1, 8, 1.0, math.inf), Offer(1, 8, 1.0, -1.0), Offer(1, -8)]
)
def test_an_absurd_offer_is_refused(offer: Offer) -> None:
    hub = Direct()
    hub.say(1, Ready())
    assert hub.say(1, offer) == [Tell(1, Outcome(1, OutcomeReason.ABSURD))]


def test_a_task_that_is_handed_out_again_is_on_the_newest_model() -> None:
    hub = Direct(order=FirstIn(2))
    hub.say(1, Ready()), hub.say(2, Ready())
    hub.hub.left(1, 1.0)
    hub.say(2, Offer(1, 8)), hub.say(2, Payload(1, np.ones(1)))
    assert hub.say(1, Ready(), 2.0) == [Tell(1, Task(1, 1))]


def test_no_tasks_is_refused() -> None:
    with pytest.raises(UsageError, match="nobody trains"):
        Hub(Mean(), tasks=0)
