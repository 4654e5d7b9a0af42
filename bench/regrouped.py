"""A process group that is made anew of the same members: torch's `_reconfigure`, on Gloo and on tweed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import torch.distributed as dist

from bench.run import Measurement, Row, timings
from tweed.systems.harness.benchmark import Config, Contender, benchmark

PART = "reconfigure"
FULL = Config(10, 3.0, 20, 200)
QUICK = Config(4, 0.5, 8, 40)
_RANKS = (4, 8)


def rows(config: Config) -> Iterator[Row]:
    """A row for each number of ranks and side."""
    for ranks in _RANKS:
        yield from timings(_regrouped, ranks, config)


def _regrouped(rank: int, ranks: int, config: Config) -> list[Measurement]:
    sides = [_contender(side, ranks) for side in ("gloo", "tweed")]
    return [Measurement(PART, 0, benchmark(sides, config, lockstep=True))]


def _contender(side: str, ranks: int) -> Contender:
    """A call exchanges the handles, which change with Gloo each time, and makes the group."""
    group: Any = dist.new_group(backend=side)
    uuids = count(1)

    def call() -> None:
        handles: list[str] = [""] * ranks
        dist.all_gather_object(handles, dist._get_reconfigure_handle(group))
        dist._reconfigure(next(uuids), handles, group).wait()

    return Contender(side, call)
