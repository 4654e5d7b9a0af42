"""What is said of a run beside its strategy, and where the process finds its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tweed.exchange.communicator import Stats
from tweed.exchange.place import Place

#: Of what all must agree on, a line each, and the run's counters: the process's place, where the others have
#: agreed.
FindPlace = Callable[[list[str], Stats], Place]


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a run, which `tweed.attach` describes."""

    bucket_bytes: int = 25 * 2**20
    sync_buffers: bool = True
    samples: float = 1.0

    def agreed(self) -> dict[str, object]:
        """The settings that must be the same at all ranks."""
        return {"bucket_bytes": self.bucket_bytes, "sync_buffers": self.sync_buffers}
