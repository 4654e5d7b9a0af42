"""Ranks that wait for each other through a file."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tweed.systems.harness.barriers import FileBarrier

SIZE = 3


def test_all_hear_of_the_slowest_and_nobody_leaves_before_the_last_has_come(tmp_path: Path) -> None:
    came: list[int] = []

    def rank(number: int) -> tuple[list[float], int]:
        barrier = FileBarrier(tmp_path / "barrier", number, SIZE)
        failed = float("inf") if number == 1 else 0.0
        slowest = [barrier.slowest(seconds) for seconds in (float(number), float(-number), failed)]
        came.append(number)
        barrier.wait()
        return slowest, len(came)

    with ThreadPoolExecutor(SIZE) as ranks:
        for slowest, all_came in ranks.map(rank, range(SIZE)):
            assert slowest == [2.0, 0.0, float("inf")]
            assert all_came == SIZE
