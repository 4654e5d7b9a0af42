"""Recorded runs replay; files that are none are refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tweed.collective import Topology, build
from tweed.errors import DataError, TweedError
from tweed.simulate import replay, run


def recorded(rank: int = 1) -> str:
    schedule = build("all_reduce", "ring", 4)
    result = run(schedule, 4000, Topology.complete(4, 10**9, 1e-5), piece=300, record=rank)
    assert result.trace is not None
    return result.trace


def saved(folder: Path, text: str) -> Path:
    path = folder / "trace.txt"
    path.write_text(text)
    return path


def test_a_recorded_run_replays(tmp_path: Path) -> None:
    found = replay(saved(tmp_path, recorded(rank=2)))
    assert (found.schedule, found.rank) == (build("all_reduce", "ring", 4), 2)
    assert found.entries > len(found.schedule)


def test_another_order_of_actions_is_a_difference(tmp_path: Path) -> None:
    lines = recorded().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if line.startswith("> combine"))
    lines[at] = "> stage 0 0\n"
    with pytest.raises(TweedError, match=r"entry \d+: recorded .*Stage.*, replayed .*Combine"):
        replay(saved(tmp_path, "".join(lines)))


def test_a_damaged_file_is_named_by_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no trace of version 1"):
        replay(saved(tmp_path, "hello"))
    with pytest.raises(DataError, match=r"line \d+ of the trace: expected a slice"):
        replay(saved(tmp_path, recorded() + "< ready\n"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.txt cannot be read"):
        replay(tmp_path / "nowhere.txt")
