"""One rank as a hub: workers reach it when they like, and take the newest model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tweed.collective.server import Server
from tweed.errors import UsageError


@dataclass(frozen=True, slots=True)
class Hub(Server):
    """A server that does not wait for all: each worker describes what it has, sends it when the hub grants
    that, and goes on from the newest model.

    The hub's optimizer steps; that of a worker counts for nothing but local steps. What workers send counts
    as a gradient: of a difference its opposite, so that `SGD(lr=1)` adds the difference to the model; of a
    model what the hub's is beyond it, so that `SGD(lr=0.5)` takes the middle of both.

    Args:
      rank: the hub's, in the group that trains.
      when: it commits, a part of `tweed.aggregate`, such as `Cache(10)`. None: after each contribution.
      tasks: at most so many workers compute or send at once; None: any number.
      task_s: after so many seconds without an offer, a worker's task is taken back.
      payload_s: after so many seconds without the payload, a grant is.
      patience: a worker whose contribution was dropped so often in a row has its next one reserved.
      model: a codec of `tweed.compress`, in which the model goes to workers, such as `Quantise(8)`. They
        compute on what it holds, and what it leaves out they never see. None: as it is.
      aggregators: so many members at a time may add up what others send, and pass on the sum: those that
        have bandwidth to spare, as measured, and have offered it (`tweed.attach(aggregator=...)`; in a group
        every rank). 0: all send to the hub.
      privacy: a `ClippedNoise` of `tweed.compress`: no value leaves a worker without noise. Buffers do not
        leave it, and the hub is told neither how many samples it has nor a loss. None: values as they are.

    Raises: UsageError for settings that cannot be.

    Cost: for each contribution two messages of 56 bytes there and three back, the contribution and the model.
    Source: tasks and cache as in TEASQ-Fed (arXiv 2312.15186), grants and drops as in MLfabric (arXiv
      1907.00434).

    Example:
      >>> Hub(0, tasks=4).tasks
      4
    """

    when: Any = None
    tasks: int | None = None
    task_s: float = 600.0
    payload_s: float = 60.0
    patience: int = 3
    model: Any = None
    privacy: Any = None
    aggregators: int = 0

    @property
    def hub(self) -> Hub:
        return self

    @property
    def one_by_one(self) -> bool:
        """Whether each contribution is an update of its own."""
        return self.when is None or bool(self.when.one_by_one)

    def __post_init__(self) -> None:
        Server.__post_init__(self)
        if self.tasks is not None and self.tasks < 1:
            raise UsageError(f"hub: tasks={self.tasks!r}: at least one must compute, or nobody trains")
        if self.aggregators < 0:
            raise UsageError(f"hub: aggregators={self.aggregators!r}: give how many there may be, from 0 on")
        if not (self.task_s > 0 and self.payload_s > 0 and self.patience >= 1):
            raise UsageError(f"{self!r}: task_s and payload_s are to be above 0, patience at least 1")
