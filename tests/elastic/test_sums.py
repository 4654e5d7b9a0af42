"""`tweed.elastic.sums`: parts begin early or late, and the sum is the same."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tweed.elastic.sums import WholeSums
from tweed.errors import PeerLost, TweedError

_MEMBERS = 3
_GROUP: Any = SimpleNamespace(size=lambda: _MEMBERS)


class Done:
    """What has begun has ended already."""

    def wait(self) -> None:
        """At once."""


class Alike:
    """Sums of members that all contribute the same; notes how long each is."""

    def __init__(self) -> None:
        self.begun: list[int] = []

    def __call__(self, part: Tensor, group: Any, async_op: bool) -> Done:
        self.begun.append(part.numel())
        part.mul_(_MEMBERS)
        return Done()


class Alone:
    """What one member contributes."""

    def __call__(self, part: Tensor, group: Any, async_op: bool) -> Done:
        self.part = part.clone()
        return Done()


class Given(NamedTuple):
    """What all contribute."""

    total: Tensor

    def __call__(self, part: Tensor, group: Any, async_op: bool) -> Done:
        part.copy_(self.total)
        return Done()


def wanted(contribution: Tensor, samples: int) -> list[float]:
    return [_MEMBERS * value for value in [*contribution.tolist(), samples]]


@given(st.lists(st.integers(1, 4), max_size=4), st.integers(0, 3), st.lists(st.integers(0, 12), max_size=4))
def test_a_sum_is_the_same_whatever_of_it_has_begun_early(
    parts: list[int], behind: int, ready: Sequence[int]
) -> None:
    sums, contribution = WholeSums(parts), torch.arange(1.0, sum(parts) + behind + 1)
    before, ends = contribution.clone(), list(accumulate(parts))
    with patch("torch.distributed.all_reduce", Alike()) as calls:
        for numel in sorted(ready):
            sums.start(contribution, numel, _GROUP, step=0, met=1)
            assert calls.begun == [part for part, end in zip(parts, ends, strict=True) if end <= numel]
        assert sums(contribution, 5, _GROUP, step=0, met=1).tolist() == wanted(contribution, 5)
        assert calls.begun == [*parts, behind + 2]
    assert torch.equal(contribution, before)


def test_what_began_in_a_group_that_broke_or_in_another_step_is_not_in_the_sum() -> None:
    sums, one, other = WholeSums([2, 2]), torch.ones(5), torch.full((5,), 7.0)
    with patch("torch.distributed.all_reduce", Alike()) as calls:
        sums.start(one, 3, _GROUP, step=0, met=1)
        assert sums(other, 2, _GROUP, step=0, met=2).tolist() == wanted(other, 2)
        sums.start(one, 4, _GROUP, step=1, met=2)
        assert sums(other, 2, _GROUP, step=2, met=2).tolist() == wanted(other, 2)
        assert calls.begun == [2, 2, 2, 3, 2, 2, 2, 2, 3]


def test_a_sum_that_fails_leaves_nothing_that_the_next_one_would_take() -> None:
    sums, one, other = WholeSums([2]), torch.ones(3), torch.full((3,), 7.0)
    with patch("torch.distributed.all_reduce", side_effect=PeerLost), pytest.raises(PeerLost):
        sums(one, 1, _GROUP, step=0, met=1)
    with patch("torch.distributed.all_reduce", Alike()):
        assert sums(other, 2, _GROUP, step=0, met=2).tolist() == wanted(other, 2)


@pytest.mark.parametrize("members", [2, 3, 1024])
def test_a_contribution_to_another_step_is_seen_by_all_that_sum_it(members: int) -> None:
    group: Any = SimpleNamespace(size=lambda: members)
    for step, others in ((7, 8), (8, 7), (2**20, 2**20 + 1), (5, 1000)):
        mine, theirs = Alone(), Alone()
        for sums, at in ((mine, step), (theirs, others)):
            with patch("torch.distributed.all_reduce", sums), suppress(TweedError):
                WholeSums()(torch.ones(2), 4, group, step=at, met=1)
        for at in (step, others):
            together = Given((members - 1) * mine.part + theirs.part)
            with (
                patch("torch.distributed.all_reduce", together),
                pytest.raises(TweedError, match=f"sum of step {at} contains contributions to other steps"),
            ):
                WholeSums()(torch.ones(2), 4, group, step=at, met=1)
        with patch("torch.distributed.all_reduce", Given(members * mine.part)):
            assert WholeSums()(torch.ones(2), 4, group, step=step, met=1)[-1] == 4 * members


def test_a_part_whose_begin_was_broken_off_may_fly() -> None:
    sums = WholeSums([2])
    with (
        patch("torch.distributed.all_reduce", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        sums.start(torch.ones(3), 2, _GROUP, step=0, met=1)
    assert sums.stop() and not sums.stop()
