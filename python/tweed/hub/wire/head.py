"""The head of a message as eight numbers: what it is, of which task, how many bytes come behind it, and five
that depend on the kind.

Behind the head of a task, of the end, and of what a member hands over comes the model; behind that of a
payload, the payload; behind that of what is sent again, the version that it was computed on. What else comes
behind a head is in `bodies`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from enum import IntEnum

from torch import Tensor

from tweed.errors import DataError
from tweed.hub.wire.messages import (
    Blocked,
    CancelGroup,
    EagerOffer,
    End,
    FromHub,
    FromWay,
    FromWorker,
    Gather,
    Grant,
    Handed,
    Leave,
    ModelGrant,
    ModelRequest,
    Offer,
    Outcome,
    OutcomeReason,
    Payload,
    Ready,
    Resume,
    Sum,
    Task,
)

NUMBERS = 8
#: As they cross a sealed link.
HEAD = struct.Struct(f"<{NUMBERS}d")
_REASONS = list(OutcomeReason)
_VERSION = struct.Struct("<d")


class Kind(IntEnum):
    """What a message is."""

    READY = 0
    OFFER = 1
    PAYLOAD = 2
    LEAVE = 3
    TASK = 4
    GRANT = 5
    OUTCOME = 6
    END = 7
    RESUME = 8
    GATHER = 9
    CANCEL_GROUP = 10
    SUM = 11
    MODEL_REQUEST = 12
    MODEL_GRANT = 13
    HANDED = 14
    BLOCKED = 15


def head_of(message: FromWorker | EagerOffer | FromHub | FromWay, numbytes: int = 0) -> list[float]:
    """The head of a message; so many bytes come behind it."""
    values: list[float]
    match message:
        case Ready():
            values = [Kind.READY, message.last]
        case Offer() | EagerOffer(offer=Offer()):
            offer = message.offer if isinstance(message, EagerOffer) else message
            values = [Kind.OFFER, offer.number, numbytes, offer.numbytes, offer.norm, offer.samples]
            values += [offer.loss, offer.model_s]
        case Resume(offer=offer):
            values = [Kind.RESUME, offer.number, numbytes, offer.numbytes, offer.norm, offer.samples]
            values.append(offer.loss)
        case Payload():
            values = [Kind.PAYLOAD, message.number, numbytes]
        case Task():
            values = [Kind.TASK, message.number, numbytes, message.version, _named(message.via)]
            values.append(message.eager_bytes)
        case Grant():
            values = [Kind.GRANT, message.number, numbytes, _named(message.via), message.copy_first]
        case Outcome():
            values = [Kind.OUTCOME, message.number, 0, _REASONS.index(message.why)]
        case End():
            values = [Kind.END, 0, numbytes, message.version]
        case Gather():
            values = [Kind.GATHER, message.group, numbytes, message.within_s, message.copy_first]
        case CancelGroup():
            values = [Kind.CANCEL_GROUP, message.group]
        case Sum():
            values = [Kind.SUM, message.group, numbytes]
        case ModelRequest():
            values = [Kind.MODEL_REQUEST, message.version]
        case ModelGrant():
            values = [Kind.MODEL_GRANT, message.version, numbytes, _named(message.member)]
        case Handed():
            values = [Kind.HANDED, message.version, numbytes, message.there]
        case Blocked():
            values = [Kind.BLOCKED, message.number]
        case _:
            values = [Kind.LEAVE]
    return [*values, *[0.0] * (NUMBERS - len(values))]


def body_of(message: FromWorker | EagerOffer) -> bytes | None:
    """What comes behind the head of a worker's message; None: nothing."""
    if isinstance(message, Resume):
        return _VERSION.pack(message.version)
    return bytes(message.value.numpy()) if isinstance(message, Payload | EagerOffer) else None


def follows(head: Sequence[float], most: int) -> int:
    """How many bytes come behind a head. Raises DataError if that is no number, or above `most`."""
    numbytes = head[2]
    if not 0 <= numbytes <= most:
        raise DataError(f"a message was announced that has {numbytes} bytes, where {most} can be")
    return int(numbytes)


def from_worker(head: Sequence[float], payload: Tensor | None) -> FromWorker:
    """A member's message, to the hub or to an aggregator, with what came behind its head; but for a sum.
    Raises DataError for what is none."""
    kind, number, _, numbytes, norm, samples, loss, model_s = head
    whole = math.isfinite(number) and math.isfinite(numbytes)
    if whole and kind == Kind.READY:
        return Ready(int(number))
    if whole and kind == Kind.OFFER:
        return Offer(int(number), int(numbytes), norm, samples, loss, 0, model_s)
    if whole and kind == Kind.PAYLOAD and payload is not None:
        return Payload(int(number), payload)
    if whole and kind == Kind.RESUME and payload is not None and payload.numel() == _VERSION.size:
        (version,) = _VERSION.unpack(bytes(payload.numpy()))
        if math.isfinite(version):
            return Resume(Offer(int(number), int(numbytes), norm, samples, loss), int(version))
    if whole and kind == Kind.MODEL_REQUEST:
        return ModelRequest(int(number), 0)
    if whole and kind == Kind.BLOCKED:
        return Blocked(int(number))
    if kind == Kind.LEAVE:
        return Leave()
    raise DataError(f"what came is no message of a worker: {list(head)}")


def from_hub(head: Sequence[float]) -> FromHub:
    """The hub's message; of a `Gather` without its tasks. Raises DataError for what is none."""
    kind, number, _, third, fourth, fifth = head[:6]
    if all(map(math.isfinite, (number, third, fourth, fifth))):
        if kind == Kind.TASK:
            return Task(int(number), int(third), _name(fourth), int(fifth))
        if kind == Kind.GRANT:
            return Grant(int(number), _name(third), fourth == 1)
        if kind == Kind.OUTCOME and 0 <= third < len(_REASONS):
            return Outcome(int(number), _REASONS[int(third)])
        if kind == Kind.END:
            return End(int(third))
        if kind == Kind.GATHER:
            return Gather(int(number), (), third, fourth == 1)
        if kind == Kind.CANCEL_GROUP:
            return CancelGroup(int(number))
        if kind == Kind.MODEL_GRANT and third >= 1:
            return ModelGrant(int(number), int(third) - 1)
    raise DataError(f"what came is no message of a hub: {list(head)}")


def from_way(head: Sequence[float]) -> Grant | Handed:
    """What a member says that is to be sent something, or was asked for the model. Raises DataError for what
    is none."""
    kind, number, _, there = head[:4]
    if math.isfinite(number) and kind == Kind.GRANT:
        return Grant(int(number))
    if math.isfinite(number) and kind == Kind.HANDED:
        return Handed(int(number), there == 1)
    raise DataError(f"what came is no message of an aggregator: {list(head)}")


def _named(member: int | None) -> int:
    """A member's number, or none, as one that is not negative."""
    return 0 if member is None else member + 1


def _name(number: float) -> int | None:
    return None if number < 1 else int(number) - 1
