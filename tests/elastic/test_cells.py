"""Ctrl-C in a cell of a notebook, and the cell run again, ten times."""

from __future__ import annotations

import secrets

import pytest
import torch
import torch.distributed as dist

from tests.elastic import cells
from tests.elastic.loops import undisturbed
from tests.hooks.nets import equal
from tweed.aggregate import All
from tweed.cadence import LocalSteps
from tweed.collective import Hub
from tweed.compress import ErrorFeedback, TopK
from tweed.strategy import Strategy
from tweed.testbed import Ranks, run_ranks


def test_a_member_goes_on_where_its_cell_was_broken_off_or_says_that_it_has_to_join_again() -> None:
    store, seed = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False), secrets.randbits(32)
    print(f"seed {seed}")
    with Ranks(cells.members, 3, store.port, seed) as ranks:
        found = ranks.join(100)
    one, others = found[-1][0], [each for each, _ in found[:-1]]
    assert one.iterations == cells.INTERRUPTS
    assert len({(each.digest, each.steps_done) for each in (one, *others)}) == 1
    assert torch.allclose(one.flat, undisturbed(one.steps_done), rtol=0, atol=1e-12)


IN_STEP = Hub(0, when=All())
STRATEGIES = {
    "gradients": Strategy(collective=IN_STEP),
    "local steps": Strategy("difference", LocalSteps(2), ErrorFeedback(TopK(0.2)), collective=IN_STEP),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_member_of_a_hub_goes_on_where_its_cell_was_broken_off(name: str) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    ((came, is_equal, versions),) = run_ranks(cells.of_a_hub, 1, STRATEGIES[name], seed)
    assert came == cells.INTERRUPTS and is_equal
    assert versions == list(range(1, cells.COMMITS + 1))


def test_a_member_goes_on_where_its_backward_pass_was_broken_off() -> None:
    ((flat, epochs),) = run_ranks(cells.member_within_a_pass, 1)
    assert torch.allclose(flat, undisturbed(6), rtol=0, atol=1e-12) and set(epochs) == {1}


@pytest.mark.parametrize(
    ("where", "strategy"),
    [("a wait", "every_step"), ("a wait", "local_steps:1"), ("a pass", "every_step")],
)
def test_of_a_group_all_hear_who_was_interrupted_and_can_attach_anew(where: str, strategy: str) -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with Ranks(cells.of_a_group, 3, store.port, where, strategy) as ranks:
        found = ranks.join(60)
    assert [kind for kind, *_ in found] == ["Aborted"] * 3
    assert all("abort() was called" in text for _, text, _ in found)
    assert all("rank 1: " in text for rank, (_, text, _) in enumerate(found) if rank != 1)
    assert all(equal(model, found[0][2]) for *_, model in found)
