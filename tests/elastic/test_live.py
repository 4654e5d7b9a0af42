"""Live members: one is killed, the others go on in the same processes, and lose no sample."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.elastic.trains import STEPS, STEPS_TOGETHER, joins, trains
from tests.simulate.test_elastic import trained
from tweed.elastic import Elastic, start
from tweed.errors import UsageError
from tweed.testbed import Ranks


@pytest.mark.parametrize("victim", [0, 2])
def test_after_a_kill_the_survivors_go_on_and_the_model_is_that_of_a_run_without(victim: int) -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    found: list[Any] = []
    with Ranks(trains, 4, store.port, victim) as ranks:
        while len(found) < 4:
            found += ranks.poll(60)
    ended = [event.value for event in found if event.rank != victim]
    assert len({digest for digest, _, _ in ended}) == 1
    assert all(epochs == [1, 2] for _, _, epochs in ended)
    expected = trained(0, 0, steps=STEPS).params
    assert torch.allclose(ended[0][1], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("victim", [None, 0, 3])
def test_a_joiner_takes_the_state_and_then_its_share(victim: int | None) -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    found: list[Any] = []
    with Ranks(joins, 4, store.port, victim) as ranks:
        while len(found) < 4:
            found += ranks.poll(60)
    ended = [event.value for event in found if event.rank != victim]
    assert len({(digest, counted) for digest, _, _, counted in ended}) == 1
    counted = ended[0][3]
    assert all(0 <= began <= counted - STEPS_TOGETHER for _, _, began, _ in ended)
    expected = trained(0, 0, steps=counted).params
    assert torch.allclose(ended[0][1], expected, rtol=0, atol=1e-12)


def test_a_number_of_members_that_cannot_be_is_an_error() -> None:
    with pytest.raises(UsageError, match="give 1 <= least <= most"):
        Elastic(3, 2)
    with pytest.raises(UsageError, match="4 members begin"):
        start(dist.HashStore(), 0, 4, Elastic(1, 2))
