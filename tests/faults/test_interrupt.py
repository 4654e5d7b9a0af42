"""Ctrl-C during a wait."""

from __future__ import annotations

import signal

import pytest
import torch

from tests.faults.ring import endings, hear_all, part, store
from tests.faults.test_killed import WAITS
from tweed.testbed import Ranks, say


def waits_for_ever(rank: int, size: int, how: str) -> str:
    if rank == 1:
        say("ready")
        store().get("rank 0 is through")
        part(rank, size)
        return "let go"
    try:
        say("ready")
        WAITS[how](torch.ones(4))
    except KeyboardInterrupt:
        return "interrupted"
    finally:
        store().set("rank 0 is through", "")
        part(rank, size)
    return "ended"


# Not `future`: torch's Future.wait looks at no signals, whatever completes it (docs/deadlines.md).
@pytest.mark.parametrize("how", ["at_once", "work"])
def test_ctrl_c_works_during_a_wait(how: str, way: str) -> None:
    with Ranks(waits_for_ever, 2, how, backend="tweed") as ranks:
        hear_all(ranks)
        ranks.kill(0, signal.SIGINT)
        assert endings(ranks, 2) == {0: "interrupted", 1: "let go"}
