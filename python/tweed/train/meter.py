"""What training has taken on one rank: one rule for its time, its waiting and its bytes.

Counted is what makes and keeps one model: its first broadcast, the steps, and the exchange that ends them.
Aside, and counted nowhere, are evaluations (with the averages that they need) and checkpoints. The small sums
between steps from which figures are made take no time here, but their bytes are in those of the link: what a
step has sent may still be leaving meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass
from typing import Any

from tweed.testbed import sent_bytes
from tweed.train.sides import Side
from tweed.train.together import Together


@dataclass(frozen=True, slots=True)
class Counts:
    """Counters of this rank, or how far they went between two moments (`-`).

    Attributes:
      exchanged: see `Side.exchanged`.
      waiting_s: see `Side.waiting`; 0 if the side does not tell.
      link_bytes: sent over this rank's link in a testbed; 0 elsewhere.
    """

    exchanged: int = 0
    waiting_s: float = 0.0
    link_bytes: int = 0

    def __sub__(self, before: Counts) -> Counts:
        return Counts(*(now - then for now, then in zip(astuple(self), astuple(before), strict=True)))


class Meter:
    """Counts from its making on. All that measure together must make one, and enter `aside`, together.

    Args:
      among: who measures.

    Attributes:
      seconds: spent within `training`.
      side: whose counters are read; None until it is made.
    """

    def __init__(self, among: Together) -> None:
        self._among, self._trains = among, False
        among.meet()  # nobody's start-up counts as another's training
        self.seconds = 0.0
        self.side: Side | None = None
        self._aside = self._read()
        self._paused: Counts | None = None

    @contextmanager
    def training(self) -> Iterator[None]:
        """What happens within is training."""
        began, self._trains = time.monotonic(), True
        yield
        self.seconds, self._trains = self.seconds + time.monotonic() - began, False

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is exchanged within is not training's, also in the middle of it; `spent` stands still."""
        self._among.meet()  # once all are here, what the steps have sent has left the links
        self._paused, began = self.spent, time.monotonic()
        yield
        if self._trains:
            self.seconds -= time.monotonic() - began
        self._aside = self._read() - self._paused
        self._paused = None

    @property
    def spent(self) -> Counts:
        """What training has taken so far."""
        return self._paused or self._read() - self._aside

    @property
    def exchanged_aside(self) -> int:
        """As `Counts.exchanged`, of what was aside."""
        return self._read().exchanged - self.spent.exchanged

    def _read(self) -> Counts:
        link_bytes = sent_bytes() or 0
        if self.side is None:
            return Counts(link_bytes=link_bytes)
        return Counts(self.side.exchanged(), self.side.waiting() or 0.0, link_bytes)

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        return {"seconds": self.seconds} | asdict(self.spent)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from the state of another process, whose side's state `side` has taken over already."""
        spent = dict(state)
        self.seconds = spent.pop("seconds")
        self._aside = self._read() - Counts(**spent)
