"""The fork server has one thread, whatever it imports for those that are forked from it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tweed.forkserver.server import ONE_THREAD


@pytest.mark.parametrize("module", ["sklearn.ensemble", "tweed.systems.double_ml"])
def test_what_is_imported_starts_no_threads(module: str) -> None:
    """scikit-learn imports pandas, and pandas Arrow, where they are installed."""
    program = f"import os, {module}\nprint(len(os.listdir('/proc/self/task')))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | ONE_THREAD,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["1"]
