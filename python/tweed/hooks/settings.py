"""What is said of a run beside its strategy, and how the process connects to the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tweed.exchange.communicator import Stats
from tweed.exchange.context import Context

AnyContext = TypeVar("AnyContext", bound=Context, covariant=True)

#: Of what all must agree on, a line each, and the run's counters: the context of the process, where the
#: others have agreed.
Connect = Callable[[list[str], Stats], AnyContext]


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a run, which `tweed.attach` describes."""

    bucket_bytes: int = 25 * 2**20
    sync_buffers: bool = True
    samples: float = 1.0

    def agreed(self) -> dict[str, object]:
        """The settings that must be the same at all ranks."""
        return {"bucket_bytes": self.bucket_bytes, "sync_buffers": self.sync_buffers}
