"""A worker's side of a step: its tasks in order, and what is sent after which.

    state       moved by                                to
    READY       begin                                   COMPUTING
    COMPUTING   its last task is done                   DONE
                the step is over                        OVER
    DONE        the step is over                        OVER
    OVER        begin, of the next step                 COMPUTING

The step may be over before the first task. What is done after that is not sent. A gradient that is not finite
is told, and ends the tasks.

Before a task that is needed only if others are slow, a worker waits for word that the step is over. It learns
for how long (`speculation_delay`): twice as long after such a task was in vain, half as long after one was
not.

What cannot happen: a message before the tasks that it is made of; a task after the worker knows that the step
is over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tweed.data.coding import Work
from tweed.data.coding.work import Message
from tweed.rng import permutation, splitmix64

#: Of the last task's time, what a worker's delay comes to at least and at most.
LEAST, MOST = 1 / 8, 1.0


class State(Enum):
    """What a worker is about."""

    READY = "ready"
    COMPUTING = "computing"
    DONE = "done"
    OVER = "over"


class Outgoing(NamedTuple):
    """A message to the server.

    Attributes:
      place: among the worker's messages of the step.
      value: `[numel]` float32, or of coded ones `[parts, numel]` float64; None: a gradient is not finite.
    """

    place: int
    value: Tensor | None


def renumbered(block: int, blocks: int, seed: int, step: int) -> int:
    """The number of a block of samples in this step, another one in each. So where not all are waited for,
    those that are missing are drawn, whichever workers are slow."""
    return int(permutation(block, block + 1, blocks, splitmix64(splitmix64(seed) ^ step)))


@dataclass(slots=True)
class CodedStepWorker:
    """See above.

    Args:
      worker: which of them.
      speculation_delay: the first, as a share of the last task's time; 0 stays 0.
    """

    worker: int
    speculation_delay: float = LEAST
    state: State = State.READY
    _bounds: tuple[float, float] = (LEAST, MOST)
    _speculative: bool = False  # its task is needed only if others are slow
    _work: Work | None = None
    _gradients: list[Tensor] = field(default_factory=list)
    _sent: int = 0

    def __post_init__(self) -> None:
        self._bounds = min(LEAST, self.speculation_delay), max(MOST, self.speculation_delay)

    def begin(self, work: Work) -> None:
        """Begins a step, whose work this is."""
        self._work, self._sent, self._speculative, self.state = work, 0, False, State.COMPUTING
        self._gradients.clear()

    def over(self) -> None:
        """The server has enough."""
        self.state = State.OVER
        self._gradients.clear()

    @property
    def may_be_enough(self) -> bool:
        """Whether the server has enough by now, if nobody is slower than this worker."""
        return self._work is not None and self.state is State.COMPUTING and self._sent >= self._work.even

    def next(self) -> Any:
        """The next task; None: there is none."""
        if self.state is not State.COMPUTING:
            return None
        assert self._work is not None  # the state says so
        self._speculative = self.may_be_enough
        return self._work.tasks[self.worker][len(self._gradients)]

    def done(self, gradient: Tensor) -> list[Outgoing]:
        """The task has the gradient `[numel]`, float32: what is to be sent now."""
        if self._speculative:
            least, most = self._bounds
            in_vain = self.state is State.OVER
            longer, shorter = min(2 * self.speculation_delay, most), max(self.speculation_delay / 2, least)
            self.speculation_delay = longer if in_vain else shorter
        if self.state is not State.COMPUTING:
            return []
        assert self._work is not None  # the state says so
        if not bool(gradient.isfinite().all()):
            self.state = State.DONE
            return [Outgoing(self._sent, None)]
        self._gradients.append(gradient)
        messages, due = self._work.messages[self.worker], []
        while self._sent < len(messages) and messages[self._sent].after == len(self._gradients):
            due.append(Outgoing(self._sent, self._mixed(messages[self._sent])))
            self._sent += 1
        if len(self._gradients) == len(self._work.tasks[self.worker]):
            self.state = State.DONE
        return due

    def _mixed(self, message: Message) -> Tensor:
        assert self._work is not None  # a task of it is done
        if self._work.plain:
            return self._gradients[-1]
        value = torch.zeros(len(message.mix), self._gradients[0].numel(), dtype=torch.float64)
        for row, mix in zip(value, message.mix.tolist(), strict=True):
            for gradient, weight in zip(self._gradients, mix, strict=True):
                if weight:
                    row.add_(gradient, alpha=weight)
        return value
