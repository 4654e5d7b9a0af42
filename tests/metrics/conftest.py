"""Each test has its own place for sockets."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tweed.metrics.publish import stop


@pytest.fixture(autouse=True)
def room(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where runs of this test, and only they, have their sockets. A socket's path must be short.

    Metrics are of one group at a time, and of the oldest: one that an earlier test has left is let go.
    """
    stop()
    with tempfile.TemporaryDirectory(prefix="tw-") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        monkeypatch.setattr("tweed.metrics.live.tempfile", SimpleNamespace(gettempdir=lambda: folder))
        yield Path(folder)
