"""A rank that stands still while DDP of a small model trains: all others are told within the deadline."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.faults.ddp import RANKS, trains, variables
from tests.faults.ring import endings
from tweed.testbed import Ranks

LATEST_S = 4.0  # a deadline of two seconds, on a busy machine; `python -m tests.faults.ddp` measures

# Metrics wake threads up, and would hide a deadline that nobody waits for.
CASES = [
    ("auto", "0", "elsewhere"),
    ("auto", "1", "stopped"),
    ("tcp", "0", "stopped"),
    ("tcp", "1", "elsewhere"),
]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: "-".join(case))
def started(request: pytest.FixtureRequest) -> Iterator[list[Ranks]]:
    """Ranks of which one stands still, for each in turn. They do little but wait: all start at once."""
    transport, metrics, how = request.param
    with pytest.MonkeyPatch.context() as patch, ExitStack() as ending:
        for name, value in variables(transport, metrics).items():
            patch.setenv(name, value)
        ranks = [Ranks(trains, RANKS, culprit, how, backend="tweed") for culprit in range(RANKS)]
        yield [ending.enter_context(each) for each in ranks]


@pytest.mark.parametrize("culprit", range(RANKS))
def test_a_rank_that_stands_still_is_named_within_the_deadline(culprit: int, started: list[Ranks]) -> None:
    for outcome, after_s in endings(started[culprit], RANKS - 1).values():
        outcome.must_be("DeadlineExceeded", f"rank {culprit} on ")
        assert after_s < LATEST_S
