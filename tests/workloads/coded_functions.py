"""Tasks of coded products that tests run on live processes."""

from __future__ import annotations

import signal
from typing import Any

import numpy as np

from tweed.workloads.coded.products import multiply_part


def hangs(path: str, x: Any) -> Any:
    """The part whose first value is 7 never answers."""
    if np.load(path)[0, 0] == 7:
        signal.pause()
    return multiply_part(path, x)


def even(path: str, x: Any) -> Any:
    """Says of each part that it took a second, as where nobody straggles."""
    return multiply_part(path, x)[0], 1.0
