"""`tweed.attach(elastic=...)`: plain loops whose members are lost, leave, join and resume."""

from __future__ import annotations

import re
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, count, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

import tweed
from tests.attach.elastic_loops import (
    BATCH,
    KILLED_AT,
    PER_MEMBER,
    STEPS,
    Trainee,
    dataset,
    differs,
    each_with_its_own,
    interrupted,
    joins,
    resumes,
    trains,
    undisturbed,
)
from tests.faults.ring import endings, hear
from tweed.aggregate import Krum, Mean
from tweed.attach.elastic import ElasticTraining
from tweed.attach.gradient import GradientExchange
from tweed.attach.member_checks import check_strategy
from tweed.attach.member_data import Feed
from tweed.attach.member_ddp import DdpExchange
from tweed.attach.member_gradients import MemberGradients
from tweed.attach.member_steps import MemberSteps
from tweed.cadence import EventTriggered, LocalSteps, Moves
from tweed.compress import (
    Direct,
    ErrorFeedback,
    Identity,
    LazyAggregation,
    LocalResidual,
    LowRank,
    Quantise,
    TopK,
)
from tweed.elastic import Elastic, start
from tweed.errors import StrategyError, UsageError
from tweed.exchange.communicator import Stats
from tweed.exchange.gradients import Groups
from tweed.exchange.owners import Owners
from tweed.exchange.place import Alone
from tweed.testbed import Ranks


def store() -> Any:
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


# A loader's worker sees by its parent that its rank is gone, and by "forkserver" it has another parent.
@pytest.mark.parametrize(
    ("victim", "options"),
    [
        (0, {}),
        (2, {"in_parts": True}),
        (0, {"in_parts": True, "at_most": 2}),
        (2, {"at_most": 1}),
        (1, {"ddp": {}}),
        (0, {"ddp": {"gradient_as_bucket_view": True}, "at_most": 2, "scaled": True}),
        (1, {"num_workers": 1, "multiprocessing_context": "fork"}),
        (3, {"at_most": 2, "scaled": True}),
    ],
    ids=[
        "whole shares",
        "in parts",
        "parts, in batches",
        "single samples",
        "in DDP",
        "in DDP, in batches",
        "loaded ahead",
        "a gradient scaler",
    ],
)
def test_a_rank_that_is_killed_within_a_step_leaves_it_whole(victim: int, options: dict[str, Any]) -> None:
    place = store()
    with Ranks(trains, 4, place.port, {victim: KILLED_AT}, options) as ranks:
        found = list(endings(ranks, 3).values())
    assert len({one.digest for one in found}) == 1
    assert all(one.counted == STEPS and one.epochs == [1, 2] for one in found)
    assert torch.allclose(found[0].flat, undisturbed(STEPS), rtol=0, atol=1e-12)
    # An iteration of one sample each; of whole shares, one more where samples of the lost were dealt again.
    most = STEPS * 4 + 2 if "at_most" in options else STEPS + 2
    assert all(STEPS <= one.iterations <= most for one in found)


@pytest.mark.parametrize("options", [{}, {"num_workers": 1, "multiprocessing_context": "fork"}])
def test_with_a_batch_per_member_the_samples_of_one_that_is_killed_come_later(
    options: dict[str, Any],
) -> None:
    place, options = store(), options | {"per_member": PER_MEMBER}
    with Ranks(trains, 4, place.port, {1: KILLED_AT}, options) as ranks:
        found = list(endings(ranks, 3).values())
    assert len({one.digest for one in found}) == 1
    # Nobody computes samples of the lost within the step: each iteration counts.
    assert all(one.counted == STEPS == one.iterations and one.epochs == [1, 2] for one in found)
    assert torch.allclose(found[0].flat, each_with_its_own(4, 1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("victim", [None, 3])
def test_who_joins_deals_as_the_others_do_with_a_batch_per_member(victim: int | None) -> None:
    place = store()
    with Ranks(joins, 4, place.port, victim, "every_step", "per_member") as ranks:
        found = list(endings(ranks, 4 if victim is None else 3).values())
    assert len({(one.digest, one.counted) for one in found}) == 1


@pytest.mark.parametrize("options", [{}, {"in_parts": True}, {"ddp": {"static_graph": True}}])
def test_who_leaves_ends_its_loop_and_more_members_than_samples_are_no_harm(options: dict[str, Any]) -> None:
    place = store()
    with Ranks(trains, 3, place.port, {1: -KILLED_AT}, options) as ranks:
        stayed, left, other = ranks.join(60)
    assert stayed.digest == other.digest and KILLED_AT < left.counted < STEPS == stayed.counted
    assert torch.allclose(stayed.flat, undisturbed(STEPS), rtol=0, atol=1e-12)
    assert torch.allclose(left.flat, undisturbed(left.counted), rtol=0, atol=1e-12)


def test_ctrl_c_ends_a_member_within_a_step_and_one_that_waits_for_others_and_no_other() -> None:
    place = store()
    with Ranks(interrupted, 3, place.port) as ranks:
        hear(ranks, dict.fromkeys(range(3), "within a step"))
        ranks.kill(2, signal.SIGINT)
        assert endings(ranks, 1) == {2: [1]}
        place.set("go on", "")
        hear(ranks, dict.fromkeys(range(2), "goes on"))
        ranks.kill(1, signal.SIGINT)
        ended = hear(ranks, {0: "waiting for members: 1"})
        ranks.kill(0, signal.SIGINT)
        assert ended | endings(ranks, 2 - len(ended)) == {0: [1, 2], 1: [1, 2]}


def test_buffers_are_equal_too() -> None:
    place = store()
    with Ranks(trains, 3, place.port, {1: KILLED_AT}, {"normed": True, "at_most": 3}) as ranks:
        found = list(endings(ranks, 2).values())
    assert len({one.digest for one in found}) == 1
    assert int(found[0].flat[-1]) == STEPS  # batches that batch norm has seen


@pytest.mark.parametrize(
    ("compress", "most"),
    [(Quantise(8), 0.05), (ErrorFeedback(TopK(0.5)), 1.0), (ErrorFeedback(LowRank(1)), 1.0)],
)
def test_gradients_that_go_as_packets_are_the_same_at_all(compress: Any, most: float) -> None:
    place, strategy = store(), tweed.Strategy(compress=compress)
    with Ranks(trains, 4, place.port, {1: KILLED_AT, 2: -STEPS // 2}, {"strategy": strategy}) as ranks:
        found = endings(ranks, 3)
    assert found[0].digest == found[3].digest and found[0].counted == STEPS > found[2].counted
    off = (found[0].flat - undisturbed(STEPS)).abs().max()
    assert 1e-6 < off < most  # rounded, and little


@pytest.mark.parametrize(
    "strategy", ["top_k:0.5", "powersgd:1", "sign", "quantised:8", "half", "local_top_k:2,0.5"]
)
def test_who_joins_has_what_a_codec_shares_and_begins_with_nothing_of_its_own(strategy: str) -> None:
    place = store()
    with Ranks(joins, 4, place.port, 2, strategy) as ranks:
        found = list(endings(ranks, 3).values())
    assert len({(one.digest, one.counted) for one in found}) == 1


@pytest.mark.parametrize("victim", [None, 0, 3])
def test_who_joins_goes_through_the_same_loop(victim: int | None) -> None:
    place = store()
    with Ranks(joins, 4, place.port, victim) as ranks:
        found = list(endings(ranks, 4 if victim is None else 3).values())
    assert len({(one.digest, one.counted) for one in found}) == 1
    assert torch.allclose(found[0].flat, undisturbed(found[0].counted), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("model", r"do not hold the same model.* and this process has"),
        ("data", "'samples': 60.*'samples': 20"),
    ],
)
def test_who_has_something_else_is_told_and_the_others_go_on(what: str, words: str) -> None:
    place = store()
    with Ranks(differs, 3, place.port, what) as ranks:
        first, odd, last = ranks.join(60)
    assert re.search(words, odd) and first.digest == last.digest
    assert torch.allclose(first.flat, undisturbed(STEPS), rtol=0, atol=1e-12)


@pytest.mark.parametrize("numbers", [(3, 1, 2), (4, 2, 3)])
def test_a_program_goes_on_from_its_own_checkpoint_with_another_number_of_members(
    tmp_path: Path, numbers: tuple[int, ...]
) -> None:
    place = store()
    for attempt, (members, steps) in enumerate(zip(numbers, (8, 13, STEPS), strict=True)):
        with Ranks(resumes, members, place.port, tmp_path, f"{attempt}", steps) as ranks:
            found = ranks.join(60)
    assert len({one.digest for one in found}) == 1
    assert torch.allclose(found[0].flat, undisturbed(STEPS), rtol=0, atol=1e-12)


@given(st.lists(st.booleans(), min_size=1, max_size=30), st.integers(0, 5))
def test_a_loader_that_draws_ahead_gives_what_is_due(changes: list[bool], depth: int) -> None:
    """At each batch members may change, and with them all batches from there on."""
    deals = list(accumulate(changes))
    feed = Feed()

    def upcoming(at: int) -> Callable[[], Iterator[tuple[int, ...]]]:
        return lambda: ((deals[at], batch) for batch in count(at + 1))

    def ahead() -> Iterator[list[int]]:
        source = iter(feed)
        drawn = deque(islice(source, depth))
        for batch in source:
            drawn.append(batch)
            yield drawn.popleft()

    feed.expect((deals[0], 0), upcoming(0))
    source = ahead()
    for at, deal in enumerate(deals):
        assert feed.take(source, (deal, at), upcoming(at)) == [deal, at]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"exchange": "model"}, "steps are lost with who made them"),
        (
            {"exchange": "difference", "cadence": LocalSteps(2), "compress": LocalResidual(TopK(0.1))},
            "differ after an exchange",
        ),
        (
            {
                "cadence": EventTriggered(Moves(share=0.1, rate=0.1)),
                "compress": Direct(Identity(by_ranges=True)),
            },
            "for all or for none",
        ),
        ({"compress": LazyAggregation(TopK(0.1))}, "nobody else can take it out"),
        ({"compress": "auto"}, "Name one, such as"),
        ({"aggregate": Krum(1)}, "shares of unequal sizes"),
        ({"transport": "ltp"}, "whole contributions"),
    ],
)
def test_a_strategy_that_cannot_be_names_its_part_and_why(options: dict[str, Any], words: str) -> None:
    with pytest.raises(StrategyError, match=f"does not go with elastic.*{words}"):
        check_strategy(tweed.Strategy(**options))


def alone() -> tuple[Trainee, ElasticTraining]:
    trainee, control = Trainee(0), start(dist.HashStore(), 0, 1, Elastic(1, 1))
    return trainee, tweed.attach(trainee.model, trainee.optimizer, elastic=control)


def draw(run: ElasticTraining, **options: Any) -> Any:
    return next(iter(run.batches(dataset(), 5, BATCH, **options)))


def _own_loader(trainee: Trainee, run: ElasticTraining) -> None:
    trainee.learn(*dataset()[:4])


def _twice(trainee: Trainee, run: ElasticTraining) -> None:
    x, y = draw(run)
    loss = (trainee.model(x) - y).square().mean()
    loss.backward(retain_graph=True)
    loss.backward()


def _no_step(trainee: Trainee, run: ElasticTraining) -> None:
    for x, y in run.batches(dataset(), 5, BATCH):
        (trainee.model(x) - y).square().mean().backward()


def _no_pass(trainee: Trainee, run: ElasticTraining) -> None:
    for _ in run.batches(dataset(), 5, BATCH):
        pass


def _closure(trainee: Trainee, run: ElasticTraining) -> None:
    draw(run)
    trainee.optimizer.step(lambda: 0.0)


def _evaluated(trainee: Trainee, run: ElasticTraining, loop: Callable[..., Any]) -> None:
    """A loop with a closure of the run's."""

    def loss(batch: Any) -> Tensor:
        x, y = batch
        return (trainee.model(x) - y).square().mean()

    closure = run.closure(loss)
    for batch in run.batches(dataset(), 5, BATCH):
        loop(trainee.optimizer, closure, lambda batch=batch: loss(batch).backward())


def _unreached(trainee: Trainee, run: ElasticTraining) -> None:
    closure = run.closure(lambda batch: torch.zeros((), requires_grad=True) + 1)
    draw(run)
    trainee.optimizer.step(closure)


def _late(trainee: Trainee, run: ElasticTraining) -> None:
    draw(run)
    run.keep("schedule", trainee.schedule)


def _no_sync(trainee: Trainee, run: ElasticTraining) -> None:
    with run.no_sync():
        pass


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (_own_loader, r"loop over run\.batches"),
        (_twice, "one backward pass and one step for each batch"),
        (_no_step, r"optimizer\.step\(\) was not called"),
        (_no_pass, "no backward pass for the last batch"),
        (_closure, r"make it by closure = run\.closure"),
        (lambda trainee, run: _evaluated(trainee, run, lambda opt, ours, own: opt.step()), "make it by"),
        (
            lambda trainee, run: _evaluated(trainee, run, lambda opt, ours, own: opt.step(own)),
            "outside of the",
        ),
        (lambda trainee, run: _evaluated(trainee, run, lambda opt, ours, own: ours()), "taken no step"),
        (lambda trainee, run: _evaluated(trainee, run, lambda opt, ours, own: None), "taken no step"),
        (_unreached, "reaches no parameter"),
        (lambda trainee, run: run.closure(lambda batch: batch)(), r"without a batch: loop over run\.batches"),
        (lambda trainee, run: (draw(run), run.closure(lambda batch: batch)), r"before run\.batches"),
        (
            lambda trainee, run: (
                run.closure(lambda batch: batch),
                next(run.batches(dataset(), 5, per_member=3)),
            ),
            "the same samples: give batch=",
        ),
        (_late, r"before run\.batches"),
        (lambda trainee, run: run.keep("model", trainee.schedule), "of that name already"),
        (lambda trainee, run: run.keep("a number", 3), "needs state_dict"),
        (_no_sync, r"batches\(at_most=n\)|batches of"),
        (lambda trainee, run: draw(run, shuffle=True), "samples of a step of all together"),
        (lambda trainee, run: draw(run, sampler=[1]), "a part of the data for each rank would be lost"),
        (lambda trainee, run: next(run.batches(iter([]), 1, 1)), "dealt by number"),
        (lambda trainee, run: next(run.batches(dataset(), 1)), "one of the two"),
        (lambda trainee, run: draw(run, per_member=3), "one of the two"),
    ],
)
def test_a_wrong_loop_is_told_the_way(wrong: Callable[[Trainee, ElasticTraining], Any], words: str) -> None:
    trainee, run = alone()
    try:
        with pytest.raises(UsageError, match=words):
            wrong(trainee, run)
    finally:
        run.detach()


def attach(**options: Any) -> None:
    trainee = Trainee(0)
    tweed.attach(trainee.model, trainee.optimizer, **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"elastic": Elastic(1, 1), "hub": "K@h:1"}, "give elastic alone"),
        ({"elastic": Elastic(1, 1)}, "who are the other members"),
    ],
)
def test_attach_says_what_members_lack(
    options: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TWEED_JOIN", "RANK"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match=words):
        attach(**options)


def test_a_place_that_strangers_reach_needs_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TWEED_SECRET", "TWEED_SECRET_FILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match=r"without a secret nothing listens on 0\.0\.0\.0"):
        start(dist.HashStore(), 0, 1, Elastic(1, 1, host="0.0.0.0"))


def test_ddp_that_has_a_hook_is_refused_before_anybody_is_met() -> None:
    trainee = Trainee(0)
    trainee.wrap()
    try:
        trainee.model.register_comm_hook(None, default_hooks.fp16_compress_hook)
        with pytest.raises(UsageError, match="has a communication hook already"):
            tweed.attach(trainee.model, trainee.optimizer, elastic=Elastic(1, 1))
    finally:
        dist.destroy_process_group()


def test_a_second_pass_through_ddp_for_one_batch_is_refused() -> None:
    """DDP itself calls no hook in it, and would add this member's own gradient to the mean."""
    trainee = Trainee(0)
    trainee.wrap()
    try:
        place, (x, y) = Alone(Stats(), Owners(0, 1, Mean())), dataset()[:2]
        params, reducers = dict(trainee.model.module.named_parameters()), list[MemberGradients]()

        def made(groups: Groups) -> MemberGradients:
            reducers.append(MemberGradients(groups, [], lambda: None))
            return reducers[0]

        DdpExchange(trainee.model, params, place, 1, made)
        reducers[0].steps = steps_of(FakeRun([4, 5]), trainee)
        reducers[0].steps.begin(2, None)
        loss = (trainee.model(x) - y).square().mean()
        loss.backward(retain_graph=True)
        assert all((param.grad == 1).all() for param in params.values())  # the mean, as `FakeRun` has it
        with pytest.raises(UsageError, match="one backward pass"):
            loss.backward()
    finally:
        dist.destroy_process_group()


def test_ddp_over_several_processes_is_told_to_have_a_group_of_one() -> None:
    trainee = Trainee(0)
    trainee.wrap()
    try:
        trainee.model.process_group = SimpleNamespace(size=lambda: 3)
        with pytest.raises(UsageError, match=r"over 3 processes.*world_size=1"):
            tweed.attach(trainee.model, trainee.optimizer, elastic=Elastic(1, 1))
    finally:
        dist.destroy_process_group()


class FakeRun:
    """Steps of one member whose share is what the test says; None: others have counted it."""

    def __init__(self, *due: list[int] | None) -> None:
        self._due, self.counted, self.given = deque(due), 0, list[int]()
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
        self.counted += 1
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
    assert run.given == [2, 1] and run.counted == 1


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
    place, gradients = Alone(Stats(), Owners(0, 1, Mean())), list[MemberGradients]()

    def made(groups: Groups) -> MemberGradients:
        gradients.append(MemberGradients(groups, [], lambda: None))
        return gradients[0]

    GradientExchange(dict(trainee.model.named_parameters()), place, 1, made)
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
