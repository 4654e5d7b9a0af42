"""A program at one rank that waits for another's: it is there when it says that it listens."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tweed.testbed import Bed


@contextmanager
def listening(bed: Bed, rank: int, patience_s: int, *words: str) -> Iterator[None]:
    """Runs `words` at `rank`, for one job. It ends by itself after `patience_s`, whoever started it."""
    command = bed.command(rank, "timeout", str(patience_s), *words)
    silent = subprocess.DEVNULL  # iperf3 complains when it is ended
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=silent, text=True) as process:
        assert process.stdout is not None
        try:
            next(line for line in process.stdout if "listening" in line)
            yield
        finally:
            process.terminate()
