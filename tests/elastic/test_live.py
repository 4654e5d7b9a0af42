"""Live members: one is killed, the others go on in the same processes, and lose no sample."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.elastic.trains import STEPS, trains
from tests.simulate.test_elastic import trained
from tweed.elastic import Elastic, start
from tweed.elastic.control import Meeting
from tweed.errors import DataError, UsageError
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


def test_where_to_meet_crosses_whole_or_is_refused() -> None:
    meeting = Meeting(3, 0, 29500, "127.0.0.1")
    assert Meeting.read(meeting.message()) == meeting
    for data in (
        b"",
        b"\xff",
        b"\xff7",
        b"\xff[1, 2]",
        b"\xff[1, 2, 3, 4]",
        b'\xff[1, 2, 99999, "a"]',
        b"\xff" + b"[" * 9999,
    ):
        with pytest.raises(DataError, match="no meeting"):
            Meeting.read(data)


def test_a_number_of_members_that_cannot_be_is_an_error() -> None:
    with pytest.raises(UsageError, match="give 1 <= least <= most"):
        Elastic(3, 2)
    with pytest.raises(UsageError, match="4 members begin"):
        start(dist.HashStore(), 0, 4, Elastic(1, 2))
