"""What crosses links beside the messages of `head`: between a hub, its replica, and their members.

    hub -> member       REPLICA (appointment; its address)      RENOUNCE (appointment)
    member -> hub       RENOUNCED (appointment)
    member -> replica   COPY (task; version, norm, samples, loss; the payload)      LOST (appointment)
    replica -> member   HAVE (task): the copy is there          KEPT (task): it is in the replica's model
                        RELEASED                                SERVES (generation): the replica is the hub
    hub -> replica      ROSTER (appointment; who is who, and who is there)
                        STATE (appointment; all that the hub has)
                        LOG (entries)                           FINISHED (version)
    replica -> hub      AGREED                                  HELD (task; member)
                        LACKS (version)                         FAREWELL

A control message has a head as others have, and kinds of its own.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from torch import Tensor

from tweed.errors import DataError
from tweed.exchange.hub.head import HEAD, NUMBERS, follows
from tweed.exchange.hub.messages import Copy, Entry, Offer, Payload, Unit

_ENTRY = struct.Struct("<2d")  # version, units
_UNIT = struct.Struct("<8d")


class Kind(IntEnum):
    """See above."""

    REPLICA = 32  # those of `head` are below
    RENOUNCE = 33
    RENOUNCED = 34
    COPY = 35
    LOST = 36
    HAVE = 37
    KEPT = 38
    RELEASED = 39
    SERVES = 40
    ROSTER = 41
    STATE = 42
    LOG = 43
    FINISHED = 44
    AGREED = 45
    HELD = 46
    LACKS = 47
    FAREWELL = 48


_KINDS = frozenset(float(kind) for kind in Kind)


@dataclass(frozen=True, slots=True)
class Control:
    """One message.

    Attributes:
      kind: what it is.
      number: see the kinds above.
      values: four more.
      body: what comes behind the head.
    """

    kind: Kind
    number: int
    values: tuple[float, ...]
    body: memoryview


def is_control(data: bytes | bytearray) -> bool:
    """Whether what came is one."""
    return len(data) >= HEAD.size and HEAD.unpack_from(data)[0] in _KINDS


def head(kind: Kind, number: int = 0, *values: float, numbytes: int = 0) -> bytes:
    """The head of a message that so many bytes come behind."""
    given = [float(kind), number, numbytes, *values]
    return HEAD.pack(*given, *[0.0] * (NUMBERS - len(given)))


def read(data: bytes | bytearray) -> Control:
    """The inverse. Raises DataError for what is none."""
    found = HEAD.unpack_from(data) if len(data) >= HEAD.size else (-1.0,) * NUMBERS
    kind, number, _, *values = found
    if kind not in _KINDS or not math.isfinite(number):
        raise DataError(f"what came is no message between a hub and its replica: {list(found)}")
    if follows(found, len(data)) != len(data) - HEAD.size:
        raise DataError(f"{found[2]} bytes were announced, and {len(data) - HEAD.size} came")
    return Control(Kind(int(kind)), int(number), tuple(values), memoryview(data)[HEAD.size :])


# The log


def log_of(entries: Iterable[Entry]) -> bytes:
    """Entries as bytes: 16 each, and 64 for each unit."""
    parts = []
    for entry in entries:
        parts.append(_ENTRY.pack(entry.version, len(entry.units)))
        parts += [_UNIT.pack(*_numbers(unit)) for unit in entry.units]
    return b"".join(parts)


def entries_of(log: memoryview) -> list[Entry]:
    """The inverse. Raises DataError for what is none."""
    entries, place = [], 0
    try:
        while place < len(log):
            version, count = _ENTRY.unpack_from(log, place)
            place += _ENTRY.size
            end = place + int(count) * _UNIT.size
            units = tuple(_unit(found) for found in _UNIT.iter_unpack(log[place:end]))
            if len(units) != count:
                raise DataError(f"an entry of the log has {len(units)} units of {count:g}")
            entries.append(Entry(int(version), units))
            place = end
    except (struct.error, ValueError, OverflowError) as error:
        raise DataError(f"what came is no log: {error}") from None
    return entries


def _numbers(unit: Unit) -> Sequence[float]:
    ((member, number),) = unit.tasks  # a live hub with a replica has no sums
    norm = math.nan if unit.norm is None else unit.norm
    described = (norm, unit.samples, unit.delay, unit.loss)
    return (member, number, float(unit.left_out), unit.base_version, *described)


def _unit(found: tuple[float, ...]) -> Unit:
    member, number, left_out, base, norm, samples, delay, loss = found
    task = int(member), int(number)
    return Unit((task,), None, bool(left_out), int(base), norm, samples, int(delay), loss)


# Copies


def copy_head(version: int, offer: Offer, numbytes: int) -> bytes:
    """The head of the copy of a payload."""
    return head(Kind.COPY, offer.number, version, offer.norm, offer.samples, offer.loss, numbytes=numbytes)


def copy_of(member: int, message: Control, payload: Tensor) -> Copy:
    """What came as one. Raises DataError for a version that is none."""
    version, norm, samples, loss = message.values[:4]
    if not math.isfinite(version):
        raise DataError(f"a copy is of version {version}")
    offer = Offer(message.number, len(message.body), norm, samples, loss)
    key = member, message.number
    return Copy((key,), None, Payload(message.number, payload), (int(version),), (offer,))
