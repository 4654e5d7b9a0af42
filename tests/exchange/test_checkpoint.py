"""States for checkpoints: what is not of this version is refused by name, never misread."""

from __future__ import annotations

import pytest
import torch

from tweed.aggregate import Mean
from tweed.compress import ErrorFeedback, TopK
from tweed.compress.base import Spec
from tweed.errors import UsageError
from tweed.exchange.checkpoint import FORMAT, check_format, restored, stored
from tweed.exchange.owners import Owners
from tweed.exchange.transfers import BufferState

SPEC = Spec(((8, 4),))


def buffer() -> BufferState:
    return BufferState.start(ErrorFeedback(TopK(0.1)), SPEC, torch.zeros(SPEC.numel), Owners(0, 1, Mean()))


def test_a_state_of_another_format_is_refused_by_name() -> None:
    check_format({"format": FORMAT})
    with pytest.raises(UsageError, match=f"format 1, and this version of tweed reads {FORMAT}"):
        check_format({"strategy": "of a version without a number", "packed": None})


def test_a_residual_comes_back_and_one_of_another_size_is_refused() -> None:
    before = buffer()
    before.state.error += 3.0
    before.lost["main"] = torch.ones(SPEC.numel)
    kept = stored(before)
    after = restored(buffer(), kept)
    assert torch.equal(after.state.error, before.state.error)
    assert torch.equal(after.lost["main"], before.lost["main"])
    kept["state"]["error"] = torch.zeros(SPEC.numel + 1)
    with pytest.raises(UsageError, match="buckets of other sizes"):
        restored(buffer(), kept)
