"""A step counts for all or for none. `tests/simulate/test_elastic.py` walks it while members die."""

from __future__ import annotations

import pytest
import torch

from tweed.elastic.commit import Commit, Position, SumAnew, Take, compare
from tweed.errors import UsageError


def test_who_lacks_the_last_step_takes_its_result() -> None:
    positions = {0: Position(4, True), 1: Position(5, True), 2: Position(5, False)}
    assert compare(positions) == Take(step=4, giver=1, takers=(0,))


def test_a_step_that_counts_nowhere_is_summed_anew() -> None:
    assert compare({0: Position(4, True), 2: Position(4, False)}) == SumAnew(step=4, pending=(0,))


def test_members_of_different_runs_are_told_apart() -> None:
    with pytest.raises(UsageError, match="4 to 6 steps"):
        compare({0: Position(4, True), 1: Position(6, True)})


def test_samples_of_lost_members_are_added_to_what_is_kept() -> None:
    commit, given = Commit(), torch.tensor([2.0])
    commit.contribute(0, given, 2)
    commit.contribute(0, torch.tensor([7.0]), 1)
    assert commit.contribution is given  # no copy
    assert (commit.contribution, commit.samples) == (9, 3)
    commit.count(0, torch.tensor([3.0]))
    assert commit.position == Position(1, False) and commit.samples == 0
    with pytest.raises(UsageError, match="1 is the next"):
        commit.count(0, torch.tensor([3.0]))
