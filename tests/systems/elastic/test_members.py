"""What befalls members in an experiment, what they train, and how long checkpoints hold them up."""

from __future__ import annotations

import torch

from tweed.systems.elastic.checkpoints import held_up
from tweed.systems.elastic.member_runs import lateness, strikes
from tweed.systems.elastic.training import Trainee, compared, over_time, undisturbed
from tweed.systems.elastic.watched import Step
from tweed.testbed.faults import Plan


def test_victims_come_in_turns_from_rank_0_on() -> None:
    found = strikes(4, {"kill": 5, "two at once": 1, "stop": 1, "cut": 1}, seed=1)
    assert [strike.lost for strike in found] == [(0,), (1,), (2,), (3,), (0,), (0, 1), (0,), (0,)]
    assert {fault.kind for strike in found[:6] for fault in strike.plan.faults} == {"kill"}
    cut = found[-1].plan.faults
    assert [fault.members for fault in cut] == [(0, 1), (0, 2), (0, 3)]
    assert [fault.after_s for fault in cut[1:]] == [0, 0]  # all at once
    assert strikes(4, {"kill": 5}, seed=1) == found[:5] != strikes(4, {"kill": 5}, seed=2)


def test_a_gradient_of_all_samples_is_the_sum_of_those_of_parts() -> None:
    trainee = Trainee(torch.float64, "digits")
    whole, none = trainee.gradient(range(10)), trainee.gradient([])
    parts = trainee.gradient(range(3)) + trainee.gradient(range(3, 10))
    assert torch.allclose(whole, parts, rtol=0, atol=1e-12)
    assert whole.dtype == torch.float64 and not none.any() and none.shape == whole.shape


def test_what_nothing_befalls_learns() -> None:
    found = undisturbed(30, torch.float32, "digits")
    assert len(found.losses) == 30 and found.losses[-1] < found.losses[0]


def test_members_over_time_are_told_when_they_change() -> None:
    steps = [Step(n, n + 10.0, n + 10.5, members) for n, members in enumerate([3, 3, 2, 2, 3])]
    assert over_time(steps) == [[0.5, 3], [2.5, 2], [4.5, 3]]


def test_what_members_hold_is_told_beside_what_they_learn() -> None:
    """Of the one that is spared, when twelve kills are over."""
    plan = Plan.drawn(3, {"kill": 12}, seed=3, mean_s=0.2, spared=[1])
    found = compared(3, plan, torch.float64, "digits")
    assert found["equal"] and found["apart"] < 1e-12
    early, late = found["held"]
    assert min(early) > 0 and late.descriptors <= early.descriptors + 3 and late.threads <= early.threads + 1
    assert {members for _, members in found["members_over_time"]} == {2, 3}


def test_both_sides_of_checkpoints_are_held_up_in_each_round() -> None:
    found = held_up(2, 100_000, 2)
    assert {side: len(spans) for side, spans in found.items()} == {"tweed": 2, "async_save": 2}
    assert min(map(min, found.values())) > 0


def test_members_are_struck_one_after_the_other_and_come_back() -> None:
    plans = strikes(3, {"kill": 1}, seed=1)
    (found,) = lateness(3, plans, numel=1000, compute_s=0.02)
    assert (found["what"], found["workers"], len(found["late_s"]), len(found["back_s"])) == ("kill", 3, 1, 1)
    assert min(found["back_s"]) > 0
