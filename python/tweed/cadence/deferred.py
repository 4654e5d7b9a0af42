"""Exchange every step, and step a parameter when it is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tweed.cadence.every_step import EveryStep


@dataclass(frozen=True, slots=True)
class Deferred(EveryStep):
    """Exchanges gradients every step; a parameter is stepped when it is next read, which waits for its own.

    Values are those of `EveryStep`, bit for bit: the next forward pass begins while gradients of later layers
    are still under way. Where a step cannot be deferred it is taken at once, and that is said.

    Cost: as `EveryStep`.
    Source: the barrier between iterations that ByteScheduler removes (Peng et al., SOSP 2019, section 3.3).
    """

    exchanges: ClassVar[frozenset[str]] = frozenset({"gradient"})
    reason: ClassVar[str] = "only a gradient is needed no earlier than its parameter is read again"
    deferred: ClassVar[bool] = True
    bucket_bytes: ClassVar[int] = 2**20  # a parameter waits for the whole of its bucket
