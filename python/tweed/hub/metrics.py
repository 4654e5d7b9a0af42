"""The metrics of a hub without a group go the way of those of a group of one rank."""

from __future__ import annotations

import socket
from dataclasses import asdict
from typing import Any

from tweed.metrics.snapshot import Link


class MetricsSource:
    """A `Source` of one rank. What the hub has counted goes beside it, by `metrics.job`."""

    rank, size, epoch = 0, 1, None

    def __init__(self) -> None:
        self._posted: dict[int, bytes] = {}
        self._open = True

    def stats(self) -> list[dict[str, Any]]:
        """Nothing but the name of this host; nothing at all after `close`."""
        own = {"rank": 0, "host": socket.gethostname(), "link": "self"}
        return [asdict(Link(0, "self")) | own] if self._open else []

    def under_way_s(self) -> float:
        """Nothing: a hub has no collectives."""
        return 0.0

    def post(self, text: bytes) -> None:
        """Keeps the row of this hub, the only rank."""
        self._posted[0] = text

    def posted(self) -> dict[int, bytes]:
        """The rows by rank: that of this hub."""
        return dict(self._posted)

    def close(self) -> None:
        """There is no hub any more."""
        self._open = False
