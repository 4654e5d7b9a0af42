"""`tweed.attach(elastic=...)`: plain loops whose members are lost, leave, join and resume."""

from __future__ import annotations

import re
import signal
from collections import deque
from collections.abc import Callable, Iterator
from itertools import accumulate, count, islice
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

import tweed
from tests.elastic.loops import (
    KILLED_AT,
    PER_MEMBER,
    STEPS,
    differs,
    each_with_its_own,
    interrupted,
    joins,
    resumes,
    trains,
    undisturbed,
)
from tests.faults.ring import endings, hear
from tweed.aggregate import Krum
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
from tweed.elastic.training.checks import check_strategy
from tweed.elastic.training.loader import Feed
from tweed.errors import StrategyError
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
    assert all(one.steps_done == STEPS and one.epochs == [1, 2] for one in found)
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
    assert all(one.steps_done == STEPS == one.iterations and one.epochs == [1, 2] for one in found)
    assert torch.allclose(found[0].flat, each_with_its_own(4, 1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("victim", [None, 3])
def test_who_joins_deals_as_the_others_do_with_a_batch_per_member(victim: int | None) -> None:
    place = store()
    with Ranks(joins, 4, place.port, victim, "every_step", "per_member") as ranks:
        found = list(endings(ranks, 4 if victim is None else 3).values())
    assert len({(one.digest, one.steps_done) for one in found}) == 1


@pytest.mark.parametrize("options", [{}, {"in_parts": True}, {"ddp": {"static_graph": True}}])
def test_who_leaves_ends_its_loop_and_more_members_than_samples_are_no_harm(options: dict[str, Any]) -> None:
    place = store()
    with Ranks(trains, 3, place.port, {1: -KILLED_AT}, options) as ranks:
        stayed, left, other = ranks.join(60)
    assert stayed.digest == other.digest and KILLED_AT < left.steps_done < STEPS == stayed.steps_done
    assert torch.allclose(stayed.flat, undisturbed(STEPS), rtol=0, atol=1e-12)
    assert torch.allclose(left.flat, undisturbed(left.steps_done), rtol=0, atol=1e-12)


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
    assert found[0].digest == found[3].digest and found[0].steps_done == STEPS > found[2].steps_done
    off = (found[0].flat - undisturbed(STEPS)).abs().max()
    assert 1e-6 < off < most  # rounded, and little


@pytest.mark.parametrize(
    "strategy", ["top_k:0.5", "powersgd:1", "sign", "quantised:8", "half", "local_top_k:2,0.5"]
)
def test_who_joins_has_what_a_codec_shares_and_begins_with_nothing_of_its_own(strategy: str) -> None:
    place = store()
    with Ranks(joins, 4, place.port, 2, strategy) as ranks:
        found = list(endings(ranks, 3).values())
    assert len({(one.digest, one.steps_done) for one in found}) == 1


@pytest.mark.parametrize("victim", [None, 0, 3])
def test_who_joins_goes_through_the_same_loop(victim: int | None) -> None:
    place = store()
    with Ranks(joins, 4, place.port, victim) as ranks:
        found = list(endings(ranks, 4 if victim is None else 3).values())
    assert len({(one.digest, one.steps_done) for one in found}) == 1
    assert torch.allclose(found[0].flat, undisturbed(found[0].steps_done), rtol=0, atol=1e-12)


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
        ({"exchange": "factors"}, "at some members and not at others"),
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
