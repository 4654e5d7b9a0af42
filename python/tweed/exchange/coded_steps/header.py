"""What single messages between a worker and the server begin with: a few numbers, of a known length."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor

from tweed.errors import DataError
from tweed.exchange.coded_steps.choice import Tally

#: Numbers of a worker's head, and of the server's.
WORKER, SERVER = 8, 3


class Kind(IntEnum):
    """What a worker's head is."""

    MESSAGE = 0
    BROKEN = 1  # its gradient is not finite
    HEARD = 2  # it knows that the step is over


class Header(NamedTuple):
    """A worker's.

    Attributes:
      place: of a message, among those of the step; `numbytes` follow.
      tally: of a step that is over.
    """

    kind: Kind
    step: int
    place: int = 0
    numbytes: int = 0
    tally: Tally = Tally()

    def packed(self) -> Tensor:
        """As it crosses: `[WORKER]` float64."""
        return torch.tensor([*self[:4], *self.tally], dtype=torch.float64)

    @classmethod
    def of(cls, head: Tensor) -> Header:
        """The inverse. Raises DataError for what is no head."""
        numbers = head.tolist()
        whole = [*numbers[:5], numbers[6]]
        if not all(math.isfinite(number) and number >= 0 for number in numbers) or any(
            number != int(number) for number in whole
        ):
            raise DataError(f"what came is no message of a worker: {numbers}")
        kind, step, place, numbytes, tasks, computing_s, messages, sending_s = numbers
        if kind not in list(Kind):
            raise DataError(f"what came is no message of a worker: kind {kind:g}")
        tally = Tally(int(tasks), computing_s, int(messages), sending_s)
        return cls(Kind(int(kind)), int(step), int(place), int(numbytes), tally)


class Over(NamedTuple):
    """The server's: a step is over.

    Attributes:
      choice: of the next step's code.
      broken: the worker whose gradient is not finite: nothing follows; -1: nobody's, and the mean follows.
    """

    step: int
    choice: int
    broken: int

    def packed(self) -> Tensor:
        """As it crosses: `[SERVER]` float64."""
        return torch.tensor(self, dtype=torch.float64)

    @classmethod
    def of(cls, head: Tensor) -> Over:
        """Reads what `packed` has written."""
        return cls(*(int(number) for number in head.tolist()))
