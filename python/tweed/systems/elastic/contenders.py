"""Members that are compared, by the keys that notes have. Pure."""

from __future__ import annotations

from dataclasses import dataclass

OURS = "tweed"


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The timeouts of torchft, in seconds.

    Attributes:
      group: of collectives.
      manager: of what managers ask each other.
      join: that the lighthouse waits for who still beats.
      heartbeat: after which it takes a manager for dead.
    """

    group: float
    manager: float
    join: float
    heartbeat: float


#: Those of torchft's example `train_ddp.py` and of the lighthouse in its README; and all at a second.
SETTINGS = {
    "torchft with its example's settings": Timeouts(5, 30, 10, 5),
    "torchft with timeouts of 1 s": Timeouts(1, 1, 1, 1),
}
