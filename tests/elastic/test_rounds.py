"""`tweed.attach(elastic=...)` with local steps: rounds of members that are lost, leave and join."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import tweed
from tests.elastic.loops import BATCH, SAMPLES, STEPS, Trainee, dataset, joins, resumes, trains, twice
from tests.elastic.test_sharded_member import outcomes
from tests.faults.ring import endings
from tweed.cadence import LocalSteps
from tweed.cadence.outer import Nesterov
from tweed.compress import ErrorFeedback, Sign, TopK
from tweed.data.sampler import GlobalOrder, Sampler
from tweed.elastic import Elastic, start
from tweed.errors import UsageError
from tweed.testbed import Ranks

EVERY = 3
LOCAL = tweed.Strategy("model", LocalSteps(EVERY))
DILOCO = tweed.Strategy("difference", LocalSteps(EVERY, outer=Nesterov(0.7, 0.5)))


def store() -> Any:
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def alone(strategy: tweed.Strategy, members: int, rounds: int) -> Tensor:
    """One process that takes the local steps of all members, one after the other, without tweed's members."""
    trainees, (x, y) = [Trainee(0) for _ in range(members)], dataset().tensors
    sampler, cadence = Sampler(GlobalOrder(SAMPLES, seed=3), BATCH * EVERY), strategy.cadence
    assert isinstance(cadence, LocalSteps)
    common = trainees[0].flat
    outer = cadence.outer.start(common) if cadence.outer else None
    for _ in range(rounds):
        deal, moved = sampler.deal([str(number) for number in range(members)]), torch.zeros_like(common)
        for number, trainee in enumerate(trainees):
            torch.nn.utils.vector_to_parameters(common.clone(), trainee.model.parameters())
            share = sampler.order.samples(deal.share(str(number)))
            ends = [-(-len(share) * step // EVERY) for step in range(EVERY + 1)]
            for low, high in pairwise(ends):
                trainee.learn(x[share[low:high]], y[share[low:high]])
            moved += (trainee.flat - common) * len(share)
        mean = moved / (BATCH * EVERY)
        common = common + (mean if outer is None else cadence.outer.advance(mean, outer))  # type: ignore[union-attr]
        sampler = sampler.counted(deal)
    return common


@pytest.mark.parametrize("strategy", [LOCAL, DILOCO])
@pytest.mark.parametrize("members", [1, 3])
def test_rounds_are_those_of_members_that_stay(strategy: tweed.Strategy, members: int) -> None:
    place = store()
    with Ranks(trains, members, place.port, {}, {"strategy": strategy}) as ranks:
        found = ranks.join(60)
    assert len({one.digest for one in found}) == 1
    assert all((one.steps_done, one.iterations) == (STEPS, STEPS) for one in found)
    assert torch.allclose(found[0].flat, alone(strategy, members, STEPS // EVERY), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("strategy", "victim"),
    [
        (LOCAL, 0),
        (LOCAL, 3),
        (DILOCO, 2),
        (tweed.Strategy("difference", LocalSteps(EVERY), ErrorFeedback(Sign())), 1),
        (tweed.Strategy("difference", LocalSteps(EVERY, proximal=0.1), ErrorFeedback(TopK(0.5))), 1),
    ],
)
def test_a_member_that_is_killed_within_a_round_leaves_it_whole(
    strategy: tweed.Strategy, victim: int
) -> None:
    place = store()
    ahead = {"num_workers": 1, "multiprocessing_context": "fork"} if victim == 3 else {}
    with Ranks(trains, 4, place.port, {victim: 12}, {"strategy": strategy} | ahead) as ranks:
        found = list(endings(ranks, 3).values())
    assert len({one.digest for one in found}) == 1
    assert all(one.steps_done == STEPS and one.epochs == [1, 2] for one in found)
    # A share of three is lost with its member: each survivor goes through one of its samples at least.
    assert all(STEPS < one.iterations <= STEPS + EVERY for one in found)
    x, y = dataset().tensors
    trainee = Trainee(0)
    before = (trainee.model(x) - y).square().mean()
    torch.nn.utils.vector_to_parameters(found[0].flat, trainee.model.parameters())
    assert (trainee.model(x) - y).square().mean() < before


@pytest.mark.parametrize(
    ("victim", "strategy"), [(None, DILOCO), (0, DILOCO), (3, DILOCO), (None, LOCAL), (1, LOCAL)]
)
def test_who_joins_takes_rounds_and_then_its_share(victim: int | None, strategy: tweed.Strategy) -> None:
    place = store()
    with Ranks(joins, 4, place.port, victim, strategy) as ranks:
        found = list(endings(ranks, 4 if victim is None else 3).values())
    assert len({(one.digest, one.steps_done, one.lr) for one in found}) == 1


def test_a_loop_that_is_left_within_a_round_leaves_the_common_model_and_another_one_goes_on() -> None:
    place = store()
    with Ranks(twice, 2, place.port, DILOCO) as ranks:
        found = ranks.join(60)
    assert len({(one.digest, one.steps_done, one.lr) for one in found}) == 1


def local() -> tuple[Trainee, Any]:
    trainee, control = Trainee(0), start(dist.HashStore(), 0, 1, Elastic(1, 1))
    return trainee, tweed.attach(trainee.model, trainee.optimizer, LOCAL, elastic=control)


def test_what_follows_from_a_members_own_model_is_not_kept() -> None:
    trainee, run = local()
    with run:
        for name, kept in (
            ("ema", torch.optim.swa_utils.AveragedModel(trainee.model)),
            ("inner", trainee.optimizer),
        ):
            with pytest.raises(UsageError, match="within a round of local steps members' models"):
                run.keep(name, kept)
        run.keep("schedule", trainee.schedule)


def test_a_loop_that_never_steps_is_told() -> None:
    _, run = local()
    with pytest.raises(UsageError, match=r"no optimizer.step\(\) in a whole round"), run:
        for _ in run.batches(dataset(), STEPS, BATCH):
            pass


def test_a_mask_in_a_buffer_is_no_overflow_and_the_common_model_is_shown() -> None:
    trainee, run = local()
    trainee.model.register_buffer("mask", torch.full([2], -torch.inf, dtype=torch.float64))
    run.detach()
    run = tweed.attach(
        trainee.model, trainee.optimizer, LOCAL, elastic=start(dist.HashStore(), 0, 1, Elastic(1, 1))
    )
    with run:
        begun = trainee.flat
        for number, (x, y) in enumerate(run.batches(dataset(), STEPS, BATCH)):
            trainee.learn(x, y)
            if number == 1:
                with run.averaged():
                    assert torch.equal(trainee.flat, begun)
                assert not torch.equal(trainee.flat, begun)
    assert run.steps_done == STEPS


def test_who_leaves_ends_its_loop_with_the_model_of_a_round() -> None:
    place = store()
    with Ranks(trains, 3, place.port, {1: -12}, {"strategy": LOCAL}) as ranks:
        stayed, left, other = ranks.join(60)
    assert stayed.digest == other.digest and 12 < left.steps_done < STEPS == stayed.steps_done
    assert left.steps_done % EVERY == 0


def test_a_stored_run_goes_on_with_its_outer_optimizer_and_in_its_samples(tmp_path: Path) -> None:
    place = store()
    for attempt, steps in (("first", STEPS // 2), ("second", STEPS)):
        with Ranks(resumes, 1, place.port, tmp_path, attempt, steps, DILOCO) as ranks:
            (found,) = ranks.join(60)
    assert found.steps_done == STEPS
    assert torch.allclose(found.flat, alone(DILOCO, 1, STEPS // EVERY), rtol=0, atol=1e-12)


def test_sharded_members_take_local_steps() -> None:
    found = list(outcomes(4, {}, strategy=DILOCO).values())
    assert not any(isinstance(one, str) for one in found), found
    assert len({one.digest for one in found}) == 1
    assert torch.allclose(found[0].flat, alone(DILOCO, 2, STEPS // EVERY), rtol=0, atol=1e-12)
