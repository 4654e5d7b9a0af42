"""The head of a message as seven numbers: what it is, the task, and five that depend on the kind.

Behind the head of a task, and of the end, comes the model; behind that of a payload, the payload; behind that
of what is sent again, the version that it was computed on.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from enum import IntEnum

from torch import Tensor

from tweed.errors import DataError
from tweed.exchange.hub.messages import (
    End,
    FromHub,
    FromWorker,
    Grant,
    Leave,
    Offer,
    Outcome,
    Payload,
    Ready,
    Resume,
    Task,
    Why,
)

NUMBERS = 7
#: As they cross a link of a member without a group.
HEAD = struct.Struct(f"<{NUMBERS}d")
_WHY = list(Why)
_VERSION = struct.Struct("<d")


class _Kind(IntEnum):
    READY = 0
    OFFER = 1
    PAYLOAD = 2
    LEAVE = 3
    TASK = 4
    GRANT = 5
    OUTCOME = 6
    END = 7
    RESUME = 8


def head_of(message: FromWorker | FromHub, numbytes: int = 0) -> list[float]:
    """The head of a message; so many bytes come behind it."""
    values: list[float]
    if isinstance(message, Ready):
        values = [_Kind.READY, message.last, 0]
    elif isinstance(message, Offer):
        values = [_Kind.OFFER, message.number, 0, message.numbytes, message.norm, message.samples]
        values.append(message.loss)
    elif isinstance(message, Resume):
        offer = message.offer
        values = [_Kind.RESUME, offer.number, numbytes, offer.numbytes, offer.norm, offer.samples]
        values.append(offer.loss)
    elif isinstance(message, Task):
        values = [_Kind.TASK, message.number, numbytes, message.version]
    elif isinstance(message, Grant):
        values = [_Kind.GRANT, message.number, 0]
    elif isinstance(message, Outcome):
        values = [_Kind.OUTCOME, message.number, 0, _WHY.index(message.why)]
    elif isinstance(message, Payload):
        values = [_Kind.PAYLOAD, message.number, numbytes]
    elif isinstance(message, End):
        values = [_Kind.END, 0, numbytes, message.version]
    else:
        values = [_Kind.LEAVE]
    return [*values, *[0.0] * (NUMBERS - len(values))]


def body_of(message: FromWorker) -> bytes | None:
    """What comes behind the head of a worker's message; None: nothing."""
    if isinstance(message, Resume):
        return _VERSION.pack(message.version)
    return bytes(message.value.numpy()) if isinstance(message, Payload) else None


def follows(head: Sequence[float], most: int) -> int:
    """How many bytes come behind a head. Raises DataError if that is no number, or above `most`."""
    numbytes = head[2]
    if not 0 <= numbytes <= most:
        raise DataError(f"a message was announced that has {numbytes} bytes, where {most} can be")
    return int(numbytes)


def from_worker(head: Sequence[float], payload: Tensor | None) -> FromWorker:
    """A member's message, with what came behind its head. Raises DataError for what is none."""
    kind, number, _, numbytes, norm, samples, loss = head
    whole = math.isfinite(number) and math.isfinite(numbytes)
    if whole and kind == _Kind.READY:
        return Ready(int(number))
    if whole and kind == _Kind.OFFER:
        return Offer(int(number), int(numbytes), norm, samples, loss)
    if whole and kind == _Kind.PAYLOAD and payload is not None:
        return Payload(int(number), payload)
    if whole and kind == _Kind.RESUME and payload is not None and payload.numel() == _VERSION.size:
        (version,) = _VERSION.unpack(bytes(payload.numpy()))
        if math.isfinite(version):
            return Resume(Offer(int(number), int(numbytes), norm, samples, loss), int(version))
    if kind == _Kind.LEAVE:
        return Leave()
    raise DataError(f"what came is no message of a worker: {list(head)}")


def from_hub(head: Sequence[float]) -> FromHub:
    """The hub's message. Raises DataError for what is none."""
    kind, number, _, other = head[:4]
    if math.isfinite(number) and math.isfinite(other):
        if kind == _Kind.TASK:
            return Task(int(number), int(other))
        if kind == _Kind.GRANT:
            return Grant(int(number))
        if kind == _Kind.OUTCOME and 0 <= other < len(_WHY):
            return Outcome(int(number), _WHY[int(other)])
        if kind == _Kind.END:
            return End(int(other))
    raise DataError(f"what came is no message of a hub: {list(head)}")
