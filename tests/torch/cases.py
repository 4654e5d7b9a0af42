"""Functions of rank and size that all ranks run one after the other: one start of ranks for all of them."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping

Case = Callable[[int, int], None]


def failures_of(cases: Mapping[str, Case], rank: int, size: int) -> dict[str, str]:
    """Runs all of them on this rank. Returns the traceback of each that failed."""
    failures = {}
    for name, fn in cases.items():
        try:
            fn(rank, size)
        except Exception:  # noqa: BLE001 a failure of any kind is the result
            failures[name] = traceback.format_exc()
    return failures


def check(name: str, failures: list[dict[str, str]]) -> None:
    """Asserts that this one failed on no rank."""
    failed = [f"rank {rank}:\n{found[name]}" for rank, found in enumerate(failures) if name in found]
    assert not failed, "\n".join(failed)
