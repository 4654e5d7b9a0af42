"""One rank as a server: workers send it what they have, and it sends everybody the sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tweed.errors import UsageError

if TYPE_CHECKING:
    from tweed.collective.hub import Hub


@dataclass(frozen=True, slots=True)
class Server:
    """Workers to a server and back, along the schedule "star".

    The server has the model and takes every step, so that it can evaluate and store it, but has no data: it
    contributes nothing, and averages divide by the workers alone.

    Args:
      rank: the server's, in the group that trains; 0 or more.

    Raises: UsageError for a rank that cannot be.

    Cost: for `W` workers, `W` buffers into the server's link, then `W` out of it; two steps.
    Source: Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014.

    Example:
      >>> Server(0)
      Server(rank=0)
    """

    rank: int = 0

    @property
    def hub(self) -> Hub | None:
        """Itself, if workers reach it when they like; None: all wait for each other."""
        return None

    def __post_init__(self) -> None:
        if not (type(self.rank) is int and self.rank >= 0):
            raise UsageError(f"server: rank={self.rank!r} is no rank; give 0 or more")
