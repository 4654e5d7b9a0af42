"""The one place of the torch backend that prints."""

from __future__ import annotations

import sys
from contextlib import suppress


def say(line: str) -> None:
    """Prints a line on stderr, if anybody takes it: a pipe without a reader, or none at all, ends no rank."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            print(f"tweed: {line}", file=sys.stderr, flush=True)
