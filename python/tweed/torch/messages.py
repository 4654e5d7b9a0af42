"""Messages over a group's links for tweed's own use, apart from torch's.

Each call waits for its end. `watch` is called some times a second meanwhile; what it raises ends the wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tweed.errors import DeadlineExceeded
from tweed.torch import engine
from tweed.torch.engine import Operation
from tweed.torch.flight import Flight
from tweed.torch.host_memory import Call

if TYPE_CHECKING:
    from tweed._core import Group


Watch = Callable[[], None]

_TAG = 2**32 - 1  # no tag of torch's
_SLICE_S = 0.25


def _nobody() -> None:
    """Does nothing while a message is waited for."""


def send(group: Group, rank: int, message: Tensor, watch: Watch = _nobody) -> None:
    """Sends a contiguous CPU tensor; returns when it may be changed. Raises as `Flight.wait` does."""
    _run(group, Call(Operation.SEND, rank, _TAG).describe(message).read(message), watch)


def receive(group: Group, rank: int, message: Tensor, watch: Watch = _nobody) -> Tensor:
    """Fills `message` with what `rank` sends, of the same shape and dtype, and returns it."""
    _run(group, Call(Operation.RECV, rank, _TAG).describe(message).write(message), watch)
    return message


def barrier(group: Group, timeout_s: float | None = None) -> None:
    """Returns when all ranks have called it; within the group's timeout, or this one."""
    call = Call(Operation.BARRIER).describe(torch.empty(0))
    if timeout_s is not None:
        call.request.timeout_ms = round(timeout_s * 1000)
    _run(group, call, _nobody)


def _run(group: Group, call: Call, watch: Watch) -> None:
    from tweed import _core

    flight = Flight(engine.table(_core.engine_table()), group.address(), call)
    while True:
        try:
            return flight.wait(_SLICE_S)
        except DeadlineExceeded:
            if flight.done():  # its own deadline has passed, or it has ended well since the slice did
                return flight.wait()
        watch()
