"""What a member gives to its steps, of a run that is made up: shares, sums in parts, what does not count."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.elastic.loops import (
    Trainee,
    dataset,
)
from tweed.aggregate import Mean
from tweed.elastic.training.ddp import DdpExchange
from tweed.elastic.training.gradients import MemberGradients
from tweed.elastic.training.steps import MemberSteps
from tweed.errors import UsageError
from tweed.exchange.communicator import Stats
from tweed.exchange.context import Ungrouped
from tweed.exchange.gradients import Groups
from tweed.exchange.owners import Owners
from tweed.hooks.gradient import Beside, GradientExchange
from tweed.hooks.trained import Trained


class FakeRun:
    """Steps of one member whose share is what the test says; None: others have counted it."""

    def __init__(self, *due: list[int] | None) -> None:
        self._due, self.steps_done, self.given = deque(due), 0, list[int]()
        self.begun: list[int] = []

    def due(self, first: Callable[[], None] | None = None) -> list[int] | None:
        return self._due[0] if self._due else None

    def start(self, total: Tensor, ready: int) -> None:
        self.begun.append(ready)

    def contribute(self, total: Tensor, samples: int) -> None:
        self.given.append(samples)
        self._due.popleft()

    def is_finite(self, numel: int) -> bool:
        return True

    def result(self) -> Tensor:
        self.steps_done += 1
        if self._due and self._due[0] is None:
            self._due.popleft()
        return torch.ones(41)  # of a `Trainee`: its gradients, and a mark per parameter

    @property
    def ahead(self) -> Iterator[list[int]]:
        yield from ([*(self._due[0] or [])], [10, 11], [])


def steps_of(run: FakeRun, kept: Trainee, at_most: int | None = None) -> MemberSteps:
    return MemberSteps(run, 60, at_most, {"schedule": kept.schedule}, [kept.optimizer])  # type: ignore[arg-type]


def test_an_iteration_that_does_not_count_leaves_what_is_kept() -> None:
    run, trainee = FakeRun([1, 2, 3], [3]), Trainee(0)
    steps = steps_of(run, trainee, at_most=2)
    assert steps.begin(2, None) == (1, 2)
    assert steps.computed(torch.zeros(2)) is None and steps.is_void
    trainee.optimizer.step()  # without gradients
    for _ in range(8):
        trainee.schedule.step()
    assert trainee.optimizer.param_groups[0]["lr"] == pytest.approx(0.24)
    assert steps.begin(2, None) == (3,)
    assert trainee.schedule.last_epoch == 0 and trainee.optimizer.param_groups[0]["lr"] == 0.3
    assert steps.computed(torch.zeros(2)) is not None and not steps.is_void
    steps.stepped()
    assert run.given == [2, 1] and run.steps_done == 1


def test_who_has_nothing_to_compute_is_given_a_batch_that_does_not_count() -> None:
    run, trainee = FakeRun([], None), Trainee(0)
    steps = steps_of(run, trainee)
    assert (steps.begin(2, None), steps.samples) == ((0, 1), 0)  # more members than samples
    assert steps.computed(torch.zeros(2)) is not None and run.given == [0]
    steps.stepped()
    assert (steps.begin(2, None), steps.samples) == ((0, 1), 0)  # others have the result
    assert steps.computed(torch.zeros(2)) is not None and run.given == [0]
    steps.stepped()
    assert steps.begin(2, None) is None


@pytest.mark.parametrize(
    ("due", "at_most", "begun"),
    [([4, 5], None, [1, 7, 13, 37]), ([4, 5], 1, []), ([], None, []), (None, None, [])],
)
def test_a_sum_begins_within_the_backward_pass_where_a_batch_is_the_whole_share(
    due: list[int] | None, at_most: int | None, begun: list[int]
) -> None:
    run, trainee = FakeRun(due), Trainee(0)
    context, gradients = Ungrouped(Stats(), Owners(0, 1, Mean())), list[MemberGradients]()

    def made(groups: Groups) -> MemberGradients:
        gradients.append(MemberGradients(groups, list, lambda: None))
        return gradients[0]

    GradientExchange(Trained(trainee.model), context, 1, made, Beside(dict, lambda _: None))
    gradients[0].steps = steps_of(run, trainee, at_most)
    gradients[0].steps.begin(2, None)
    before: list[list[int]] = []
    trainee.model[0].weight.register_hook(lambda _: before.append([*run.begun]))
    trainee.learn(*dataset()[:2])
    assert run.begun == begun and before == [begun[:3]]


@pytest.mark.parametrize(
    ("share", "at_most", "batches"),
    [
        (range(5), None, [(0, 1, 2, 3, 4)]),
        (range(5), 5, [(0, 1, 2, 3, 4)]),
        (range(5), 2, [(0, 1), (2, 3), (4,)]),
        (range(10), 4, [(0, 1, 2, 3), (4, 5, 6), (7, 8, 9)]),
        ([], 3, [(0, 1)]),
    ],
)
def test_a_share_is_cut_into_equal_batches(
    share: Sequence[int], at_most: int | None, batches: list[tuple[int, ...]]
) -> None:
    run, trainee = FakeRun([*share], [*share]), Trainee(0)
    steps = steps_of(run, trainee, at_most)
    first = steps.begin(2, None)
    assert first is not None
    ahead = [first, *islice(steps.upcoming(), len(batches) + 1)]
    assert ahead == [*batches, (10, 11), (0, 1)]  # the steps behind it


@given(st.integers(0, 40), st.integers(1, 5), st.none() | st.integers(1, 7))
def test_processes_of_a_member_deal_its_share_among_themselves(
    numel: int, size: int, at_most: int | None
) -> None:
    share = [100 + number for number in range(numel)]
    runs = [FakeRun(share, share) for _ in range(size)]
    each = [
        MemberSteps(run, 200, at_most, {}, [], (process, size))  # type: ignore[arg-type]
        for process, run in enumerate(runs)
    ]
    taken: list[int] = []
    for batches in zip(*(steps._cut(share) for steps in each), strict=True):
        (count,), parts = {count for _, count in batches}, [batch for batch, _ in batches]
        assert at_most is None or all(len(part) <= at_most for part in parts) or count == 0
        # The mean over processes is that over the samples: their parts are of one size, or all have the same.
        assert len({len(part) for part in parts}) == 1
        came = sorted({sample for part in parts for sample in part}) if count else []
        assert count == len(came)
        taken += came
    assert taken == share


def test_a_second_pass_through_ddp_for_one_batch_is_refused() -> None:
    """DDP itself calls no hook in it, and would add this member's own gradient to the mean."""
    trainee = Trainee(0)
    trainee.wrap()
    try:
        context, (x, y) = Ungrouped(Stats(), Owners(0, 1, Mean())), dataset()[:2]
        params, reducers = Trained(trainee.model.module), list[MemberGradients]()

        def made(groups: Groups) -> MemberGradients:
            reducers.append(MemberGradients(groups, list, lambda: None))
            return reducers[0]

        DdpExchange(trainee.model, params, context, 1, made, Beside(dict, lambda _: None))
        reducers[0].steps = steps_of(FakeRun([4, 5]), trainee)
        reducers[0].steps.begin(2, None)
        loss = (trainee.model(x) - y).square().mean()
        loss.backward(retain_graph=True)
        assert all((param.grad == 1).all() for param in params.values())  # the mean, as `FakeRun` has it
        with pytest.raises(UsageError, match="one backward pass"):
            loss.backward()
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("when", ["drawn", "void", "counted"])
def test_a_loop_that_is_left_is_told_if_the_model_lacks_a_step_by_that(when: str) -> None:
    """An exception between backward pass and step, which the program catches, and then loops again."""
    run, trainee = FakeRun([1, 2], [3]) if when == "void" else FakeRun([1, 2]), Trainee(0)
    steps = steps_of(run, trainee)
    steps.begin(2, None)
    if when != "drawn":
        steps.computed(torch.zeros(2))
    if when == "counted":
        with pytest.raises(UsageError, match="If the loop was left before it"):
            steps.end()
    else:
        steps.end()
        assert not steps.is_void
