"""What crosses links beside the messages of `head`: between a hub, its standby, and their members.

    hub -> member       STANDBY (appointment; its address)      RENOUNCE (appointment)
    member -> hub       RENOUNCED (appointment)
    member -> standby   COPY (task; version, norm, samples, loss; the payload)      LOST (appointment)
                        SUM (group; the sum)
    standby -> member   HAVE (task): the copy is there          KEPT (task): it is in the standby's model
                        HAVE_SUM (group)
                        RELEASED                                SERVES (generation): the standby is the hub
    hub -> standby      ROSTER (appointment; who is who, and who is there)
                        STATE (appointment; all that the hub has)
                        LOG (entries)                           FINISHED (version)
    standby -> hub      AGREED                                  HELD (task; member)
                        LACKS (version)                         FAREWELL

A control message has a head as others have, and kinds of its own.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from tweed.errors import DataError
from tweed.hub.wire import bodies
from tweed.hub.wire.head import HEAD, NUMBERS, follows
from tweed.hub.wire.messages import Copy, Entry, Offer, Payload, Sum, Unit

_ENTRY = struct.Struct("<2d")  # version, units
_UNIT = struct.Struct("<8d")
_TASK = struct.Struct("<2d")


class Kind(IntEnum):
    """The kinds of control messages, as the module lists them."""

    STANDBY = 32  # those of `head` are below
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
    SUM = 49
    HAVE_SUM = 50


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
        raise DataError(f"what came is no message between a hub and its standby: {list(found)}")
    if follows(found, len(data)) != len(data) - HEAD.size:
        raise DataError(f"{found[2]} bytes were announced, and {len(data) - HEAD.size} came")
    return Control(Kind(int(kind)), int(number), tuple(values), memoryview(data)[HEAD.size :])


# The log


def log_of(entries: Iterable[Entry]) -> bytes:
    """Entries as bytes: 16 each, 64 for each unit, and 16 for each task of a sum."""
    parts = []
    for entry in entries:
        parts.append(_ENTRY.pack(entry.version, len(entry.units)))
        for unit in entry.units:
            parts.append(_UNIT.pack(*_numbers(unit)))
            parts += [_TASK.pack(*task) for task in unit.tasks if unit.group is not None]
    return b"".join(parts)


def entries_of(log: memoryview) -> list[Entry]:
    """The inverse. Raises DataError for what is none."""
    entries, place = [], 0
    try:
        while place < len(log):
            version, count = _ENTRY.unpack_from(log, place)
            place += _ENTRY.size
            units = []
            for _ in range(int(count)):
                unit, place = _unit(log, place)
                units.append(unit)
            entries.append(Entry(int(version), tuple(units)))
    except (struct.error, ValueError, OverflowError) as error:
        raise DataError(f"what came is no log: {error}") from None
    return entries


def _numbers(unit: Unit) -> Sequence[float]:
    """The numbers that describe a unit. The third is 0 for a payload; for a sum it says how many tasks
    follow, and is negative if they are left out of the sum."""
    norm = math.nan if unit.norm is None else unit.norm
    described = (unit.base_version, norm, unit.samples, unit.delay, unit.loss)
    if unit.group is None:
        return (*unit.tasks[0], 0, *described)
    assert unit.via is not None  # somebody has added it up
    return (unit.via, unit.group, -len(unit.tasks) if unit.left_out else len(unit.tasks), *described)


def _unit(log: memoryview, place: int) -> tuple[Unit, int]:
    """The unit that begins at that place, and where the next one does."""
    member, number, count, base, norm, samples, delay, loss = _UNIT.unpack_from(log, place)
    place += _UNIT.size
    described = samples, int(delay), loss
    if not count:
        return Unit(((int(member), int(number)),), None, False, int(base), norm, *described), place
    end = place + abs(int(count)) * _TASK.size
    tasks = tuple((int(one), int(other)) for one, other in _TASK.iter_unpack(log[place:end]))
    if len(tasks) != abs(count):
        raise DataError(f"a sum in the log has {len(tasks)} tasks of {abs(count):g}")
    return Unit(tasks, int(number), count < 0, int(base), None, *described, via=int(member)), end


# Copies


def copy_head(version: int, offer: Offer, numbytes: int) -> bytes:
    """The head of the copy of a payload."""
    return head(Kind.COPY, offer.number, version, offer.norm, offer.samples, offer.loss, numbytes=numbytes)


def copy_of(member: int, message: Control) -> Copy:
    """What came as one. Raises DataError for a version that is none."""
    version, norm, samples, loss = message.values[:4]
    if not math.isfinite(version):
        raise DataError(f"a copy is of version {version}")
    offer = Offer(message.number, len(message.body), norm, samples, loss)
    key = member, message.number
    return Copy((key,), None, Payload(message.number, _tensor(message.body)), (int(version),), (offer,))


def sum_message(found: Sum) -> tuple[bytes, bytes]:
    """The head and the body of a copy of a sum."""
    body = bodies.pack_sum(found)
    return head(Kind.SUM, found.group, numbytes=len(body)), body


def sum_of(member: int, message: Control, numel: int) -> Copy:
    """What came as one of a sum. Raises DataError for what is no sum of `numel` numbers."""
    found = bodies.read_sum(message.number, _tensor(message.body), numel)
    return Copy((*found.tasks, *found.left_out), found.group, found, via=member)


def _tensor(body: memoryview) -> Tensor:
    """What came, `[bytes]` uint8, without a copy."""
    return torch.frombuffer(body, dtype=torch.uint8) if len(body) else torch.empty(0, dtype=torch.uint8)
