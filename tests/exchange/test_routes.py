"""Which way a packet takes is the same on all ranks, whoever is silent."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compress.group import Group
from tests.compress.table import SPEC, gaussian
from tweed.compress import ErrorFeedback, ErrorReset, Half, LazyAggregation, Memory, Nothing, StepAhead

MEMORIES: list[Memory[Any]] = [
    ErrorFeedback(Half()), ErrorReset(Half(), Half(), every=2), ErrorReset(Nothing(), Half()),
    StepAhead(Half(), average_every=2), LazyAggregation(Half()),
]  # fmt: skip


@pytest.mark.parametrize("memory", MEMORIES, ids=repr)
def test_a_silent_rank_takes_the_same_way(memory: Memory[Any]) -> None:
    group = Group(memory, SPEC, 3)
    for step in range(4):
        group.exchange([gaussian(seed=rank) for rank in range(3)], [rank == step % 3 for rank in range(3)])
