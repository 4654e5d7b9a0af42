"""Tasks of coded products that tests run on live processes."""

from __future__ import annotations

import signal
from typing import Any

from tweed.workloads.coded.products import multiply_part


def hangs(part: Any, x: Any) -> Any:
    """The part whose first value is 7 never answers."""
    if part[0, 0] == 7:
        signal.pause()
    return multiply_part(part, x)


def even(part: Any, x: Any) -> Any:
    """Says of each part that it took a second, as where nobody straggles."""
    return part @ x, 1.0
