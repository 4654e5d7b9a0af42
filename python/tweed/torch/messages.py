"""Messages over a group's links for tweed's own use, apart from torch's. Each call waits for its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tweed.torch import engine
from tweed.torch.call import Call
from tweed.torch.engine import Operation
from tweed.torch.flight import Flight

if TYPE_CHECKING:
    from tweed._core import Group

_TAG = 2**32 - 1  # no tag of torch's


def send(group: Group, rank: int, message: Tensor) -> None:
    """Sends a contiguous CPU tensor; returns when it may be changed. Raises as `Flight.wait` does."""
    _run(group, Call(Operation.SEND, rank, _TAG).describe(message).read(message))


def receive(group: Group, rank: int, message: Tensor) -> Tensor:
    """Fills `message` with what `rank` sends, of the same shape and dtype, and returns it."""
    _run(group, Call(Operation.RECV, rank, _TAG).describe(message).write(message))
    return message


def barrier(group: Group) -> None:
    """Returns when all ranks have called it."""
    nothing = torch.empty(0)
    _run(group, Call(Operation.BARRIER).describe(nothing))


def _run(group: Group, call: Call) -> None:
    from tweed import _core

    Flight(engine.table(_core.engine_table()), group.address(), call).wait()
