"""Members whose optimizer takes a closure: each evaluation counts for all or for none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.attach.closure_loops import STEPS, Moment, closes, joins, undisturbed, waits
from tests.faults.ring import endings, hear
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
    assert all(one.counted == STEPS == one.iterations for one in found)
    assert all(len(one.epochs) == 1 + len(dies) for one in found)
    assert torch.allclose(found[0].flat, undisturbed(STEPS, search), rtol=0, atol=1e-12)


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
@pytest.mark.parametrize("victim", [None, 0])
def test_who_joins_replays_evaluations_and_has_the_same_bits(search: str | None, victim: int | None) -> None:
    place = store()
    with Ranks(joins, 4, place.port, search, victim) as ranks:
        found = list(endings(ranks, 4 if victim is None else 3).values())
    assert len({(one.digest, one.counted) for one in found}) == 1


def test_who_leaves_within_a_step_has_the_model_of_its_begin() -> None:
    place = store()
    with Ranks(closes, 3, place.port, None, {1: (-4, 0)}, {}) as ranks:
        stayed, left, other = ranks.join(60)
    assert stayed.digest == other.digest and 4 <= left.counted < STEPS == stayed.counted
    assert torch.allclose(stayed.flat, undisturbed(STEPS, None), rtol=0, atol=1e-12)
    assert torch.allclose(left.flat, undisturbed(left.counted, None), rtol=0, atol=1e-12)


def test_who_is_let_in_within_a_step_gets_its_begin_and_what_has_counted_since() -> None:
    place = store()
    with Ranks(waits, 4, place.port, "strong_wolfe") as ranks:
        hear(ranks, dict.fromkeys((1, 2), "waiting for members"))
        place.set("they wait", "")
        hear(ranks, {1: "ranks (2,) get the whole state"})
        found = list(endings(ranks, 3).values())
    assert len({one.digest for one in found}) == 1
    assert torch.allclose(found[0].flat, undisturbed(STEPS, "strong_wolfe"), rtol=0, atol=1e-12)
