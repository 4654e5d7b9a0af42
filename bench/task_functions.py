"""What `bench/tasks.py` lets workers do. Each worker imports it, so it imports little."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

Payload = tuple[int, float, str]


def sleep(payload: Payload) -> int:
    """Sleeps, and returns its number. Where a file is named, its process is killed amid the first time."""
    number, seconds, mark = payload
    time.sleep(seconds / 2)
    if mark and not os.path.exists(mark):
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(seconds / 2)
    return number


def after_all(payload: Payload) -> int:
    """Returns when as many workers as `number` says have come to `mark`, a folder."""
    number, _, mark = payload
    Path(mark, str(os.getpid())).touch()
    while len(os.listdir(mark)) < number:
        time.sleep(0.005)
    return number
