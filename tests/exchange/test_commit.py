"""A step counts for all or for none. `tests/simulate/test_elastic.py` walks it while members die."""

from __future__ import annotations

import pytest
import torch

from tweed.errors import UsageError
from tweed.exchange.commit import Commit, Position, SumAnew, Take, compare, mean


def test_who_lacks_the_last_step_takes_its_result() -> None:
    positions = {0: Position(4, True), 1: Position(5, True), 2: Position(5, False)}
    assert compare(positions) == Take(step=4, giver=1, takers=(0,))


def test_a_step_that_counts_nowhere_is_summed_anew() -> None:
    assert compare({0: Position(4, True), 2: Position(4, False)}) == SumAnew(step=4, pending=(0,))


def test_members_of_different_runs_are_told_apart() -> None:
    with pytest.raises(UsageError, match="4 to 6 steps"):
        compare({0: Position(4, True), 1: Position(6, True)})


def test_samples_of_lost_members_are_added_to_what_is_kept_and_the_mean_is_over_samples() -> None:
    first, second = Commit(), Commit()
    given = torch.tensor([2.0])
    first.contribute(0, given, 2)
    first.contribute(0, torch.tensor([7.0]), 1)
    second.contribute(0, torch.tensor([3.0]), 1)
    assert given == 2  # what is kept is a copy
    parts = {}
    for rank, commit in ((1, second), (0, first)):
        assert commit.contribution is not None
        parts[rank] = commit.contribution, commit.samples
    assert mean(parts) == 3.0
    first.count(0, mean(parts))
    assert first.position == Position(1, False) and first.samples == 0
    with pytest.raises(UsageError, match="1 is the next"):
        first.count(0, mean(parts))
