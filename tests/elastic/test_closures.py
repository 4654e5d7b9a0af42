"""Members whose optimizer takes a closure: each evaluation counts for all or for none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import tweed
from tests.elastic.closure_loops import STEPS, Moment, closes, joins, resumes, undisturbed, waits
from tests.faults.ring import endings, hear
from tweed.cadence import LocalSteps
from tweed.elastic.training.evaluations import MemberEvaluations
from tweed.errors import Left
from tweed.testbed import Ranks


def store() -> Any:
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
@pytest.mark.parametrize(
    ("dies", "options"),
    [({}, {}), ({0: (4, 0), 2: (7, 2)}, {}), ({1: (5, 3)}, {"at_most": 2})],
    ids=["nobody", "two", "small batches"],
)
def test_the_model_is_that_of_one_process_whoever_is_killed_within_an_evaluation(
    search: str | None, dies: dict[int, Moment], options: dict[str, Any]
) -> None:
    place = store()
    with Ranks(closes, 4, place.port, search, dies, options) as ranks:
        found = list(endings(ranks, 4 - len(dies)).values())
    assert len({one.digest for one in found}) == 1
    # Nobody has an iteration that does not count.
    assert all(one.steps_done == STEPS == one.iterations for one in found)
    assert all(len(one.epochs) == 1 + len(dies) for one in found)
    assert torch.allclose(found[0].flat, undisturbed(STEPS, search), rtol=0, atol=1e-12)


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
@pytest.mark.parametrize("victim", [None, 0])
def test_who_joins_replays_evaluations_and_has_the_same_bits(search: str | None, victim: int | None) -> None:
    place = store()
    with Ranks(joins, 4, place.port, search, victim) as ranks:
        found = list(endings(ranks, 4 if victim is None else 3).values())
    assert len({(one.digest, one.steps_done) for one in found}) == 1


def test_who_leaves_within_a_step_has_the_model_of_its_begin() -> None:
    place = store()
    with Ranks(closes, 3, place.port, None, {1: (-4, 0)}, {}) as ranks:
        stayed, left, other = ranks.join(60)
    assert stayed.digest == other.digest and 4 <= left.steps_done < STEPS == stayed.steps_done
    assert torch.allclose(stayed.flat, undisturbed(STEPS, None), rtol=0, atol=1e-12)
    assert torch.allclose(left.flat, undisturbed(left.steps_done, None), rtol=0, atol=1e-12)


@pytest.mark.parametrize("by", ["its own", "members"])
def test_a_run_goes_on_from_a_checkpoint_with_another_number_of_members(tmp_path: Path, by: str) -> None:
    place = store()
    for attempt, (members, steps) in enumerate(((3, 5), (1, 8), (2, STEPS))):
        with Ranks(resumes, members, place.port, tmp_path, f"{attempt}", steps, by == "members") as ranks:
            found = ranks.join(60)
    assert len({(one.digest, one.steps_done) for one in found}) == 1 and found[0].steps_done == STEPS
    assert torch.allclose(found[0].flat, undisturbed(STEPS, "strong_wolfe"), rtol=0, atol=1e-12)


def test_a_local_step_takes_its_closure_from_its_own_batch() -> None:
    place, strategy = store(), tweed.Strategy("model", LocalSteps(3))
    with Ranks(closes, 2, place.port, None, {}, {"strategy": strategy}) as ranks:
        found = ranks.join(60)
    assert len({one.digest for one in found}) == 1 and found[0].steps_done == STEPS


class FakeRun:
    """Evaluations of a member that is alone; at the given one it has left, or is given another state."""

    def __init__(self, broken_at: int, leaves: bool) -> None:
        self.steps_done = self.given = 0
        self.did, self._broken_at, self._leaves = list[str](), broken_at, leaves
        self.replaced = self._contributed = False

    def begin_step(self) -> None:
        self.did.append("begin")
        self.replaced = False

    def revert(self) -> None:
        self.did.append("revert")

    def due(self, first: Any = None) -> list[int] | None:
        if self.given == self._broken_at and self._leaves:
            raise Left("out")
        if self.given == self._broken_at:
            self.replaced, self._broken_at = True, -1
        return None if self._contributed or self.replaced else [1, 2]

    def contribute(self, total: Tensor, samples: int) -> None:
        self._contributed = True

    def is_finite(self, numel: int) -> bool:
        return True

    def result(self) -> Tensor:
        self._contributed, self.given = False, self.given + 1
        return torch.full((2,), float(self.given))


def evaluate(steps: MemberEvaluations) -> list[Tensor | None]:
    return [steps.computed(torch.ones(2)) for _ in steps.evaluation()]


@pytest.mark.parametrize("leaves", [True, False])
def test_a_step_that_is_broken_off_has_no_more_gradients_and_another_state_behind_it(leaves: bool) -> None:
    run = FakeRun(2, leaves)
    steps = MemberEvaluations(run, 60, None, {}, [])  # type: ignore[arg-type]
    assert steps.begin(9, None) == (1, 2)
    for number in (1.0, 2.0):
        (mean,) = evaluate(steps)
        assert mean is not None and mean.tolist() == [number, number] and not steps.is_void
    assert evaluate(steps) == evaluate(steps) == [] and steps.is_void
    steps.stepped()
    assert steps.begin(9, None) == (None if leaves else (1, 2))
    assert run.did == (["begin", "revert"] if leaves else ["begin", "begin"])


def test_who_is_let_in_within_a_step_gets_its_begin_and_what_has_counted_since() -> None:
    place = store()
    with Ranks(waits, 4, place.port, "strong_wolfe") as ranks:
        hear(ranks, dict.fromkeys((1, 2), "waiting for members"))
        place.set("they wait", "")
        hear(ranks, {1: "ranks (2,) get the whole state"})
        found = list(endings(ranks, 3).values())
    assert len({one.digest for one in found}) == 1
    assert torch.allclose(found[0].flat, undisturbed(STEPS, "strong_wolfe"), rtol=0, atol=1e-12)
