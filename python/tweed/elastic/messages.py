"""What members say to each other beside what their `MemberNode`s do.

The first byte tells them apart: below `TEXT` it is for the node, `TEXT` begins one of the kinds below, as
JSON, and `CHUNK` a part of the state, or of a result, for a process that joins.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import Any

from tweed.elastic import packing
from tweed.errors import DataError

TEXT, CHUNK = 0xFE, 0xFF
#: What a chunk is of: the shape of the state, its tensors, digests of them, or the result of a step.
STRUCTURE, TENSORS, DIGESTS, RESULT = range(4)

# What a part of a message may be, by its name in `_SOUND`.
Attempt = int
Port = int
Pairs = list[list[str]]

#: No message between members is longer: an epoch of 1024 members twice.
MOST_BYTES = 1 << 18
#: The most bytes of a chunk.
CHUNK_BYTES = 1 << 16
#: Of so many epochs meetings are kept: those next to the one that is known.
_MOST_MEETINGS = 16
_PACKED = 0x80  # beside what a chunk is of: its body is packed
_HEAD = struct.Struct("<BBIQQQQI")


@dataclass(frozen=True, order=True, slots=True)
class Meeting:
    """Where the group of an epoch meets; of several the last one counts. With port 0 the one who is to say so
    cannot be called: the member whose key is in the place of a host says so next."""

    epoch: int
    attempt: Attempt
    port: Port
    host: str


class Meetings:
    """The last that was said of each epoch. Pure.

    One of a later epoch than this process knows counts when it knows that epoch: if that never comes, it
    moves nobody.

    Example:
      >>> said = Meetings()
      >>> [said.note(Meeting(number, 0, 29500, "::1"), epoch=1) for number in (1, 1, 9)]
      [True, False, True]
      >>> said.last(epoch=1).epoch, said.last(epoch=9).epoch
      (1, 9)
    """

    def __init__(self) -> None:
        self._of: dict[int, Meeting] = {}

    def last(self, epoch: int) -> Meeting:
        """The meeting that counts while this epoch is the last that is known."""
        return max((one for number, one in self._of.items() if number <= epoch), default=Meeting(0, 0, 0, ""))

    def note(self, meeting: Meeting, epoch: int) -> bool:
        """One is said, while this epoch is the last that is known. Returns whether it is news."""
        known = self._of.get(meeting.epoch)
        if known is not None and meeting <= known:
            return False
        found = {**self._of, meeting.epoch: meeting}
        first = max((number for number in found if number <= epoch), default=0)
        near = sorted(number for number in found if number >= first)[:_MOST_MEETINGS]
        self._of = {number: found[number] for number in near}
        return meeting.epoch in self._of


@dataclass(frozen=True, slots=True)
class Hello:
    """The first of a process that calls: where it is called itself."""

    address: str


@dataclass(frozen=True, slots=True)
class Known:
    """The answer: who else there is, members first in the order of their ranks, as pairs of key and address;
    the highest incarnation that is known of the one that asks, -1 for none; and of the run how few and how
    many members it may have, and what it says about itself. Another joiner knows nothing of the run, and
    has 0 there."""

    others: Pairs
    incarnation: int
    least: int = 0
    most: int = 0
    about: str = ""


@dataclass(frozen=True, slots=True)
class Life:
    """A witness's answer: which life of its key it is, and the last epoch that it knows, 0 for none."""

    incarnation: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """Where a process is called that wants to take a witness's place: it asks those that call it. Witnesses
    pass this on to members."""

    key: str
    address: str


@dataclass(frozen=True, slots=True)
class Ask:
    """A joiner wants a copy of the state, at a step that is at least so many ahead, from those to whom it has
    links. `terms` are what it holds: see `tweed.elastic.terms`."""

    attempt: Attempt
    lead: int
    linked: list[str]
    terms: list[str]


@dataclass(frozen=True, slots=True)
class Give:
    """All these copy their part of the state at the begin of this step, for a joiner. Without donors: members
    count no steps until others come, so it is to ask to be let in first."""

    joiner: str
    attempt: Attempt
    step: int
    donors: list[str]


@dataclass(frozen=True, slots=True)
class Refused:
    """To a joiner: this attempt has failed, and why."""

    attempt: Attempt
    reason: str
    final: bool


@dataclass(frozen=True, slots=True)
class Got:
    """A joiner has so many bytes more of what it is given."""

    attempt: Attempt
    count: int


Text = Meeting | Hello | Known | Life | Candidate | Ask | Give | Refused | Got

_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Meeting, Hello, Known, Life, Candidate, Ask, Give, Refused, Got)
}
_SOUND: dict[str, Callable[[Any], bool]] = {
    "int": lambda value: type(value) is int and -1 <= value < 1 << 63,
    "Attempt": lambda value: type(value) is int and 0 <= value < 1 << 32,  # as `Chunk` has it
    "Port": lambda value: type(value) is int and 0 <= value < 1 << 16,
    "str": lambda value: isinstance(value, str),
    "bool": lambda value: isinstance(value, bool),
    "list[str]": lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
    "Pairs": lambda value: (
        isinstance(value, list) and all(_SOUND["list[str]"](one) and len(one) == 2 for one in value)
    ),
}


def packed(text: Text) -> bytes:
    """A text as bytes, as it crosses a link."""
    return bytes([TEXT]) + json.dumps([type(text).__name__, *astuple(text)]).encode()


def read(data: bytes | bytearray) -> Text:
    """The inverse of `packed`. Raises DataError for what is no such message."""
    try:
        name, *values = json.loads(data[1:])
        kind = _KINDS[name]
        checks = [_SOUND[field.type] for field in kind.__dataclass_fields__.values()]
        sound = len(checks) == len(values) and all(
            check(value) for check, value in zip(checks, values, strict=True)
        )
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DataError(f"what came is no message of members: {error}") from None
    if not sound:
        raise DataError(f"what came is no message of members: {name} has other parts")
    found: Text = kind(*values)
    return found


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes of something that is given to a joiner in parts.

    Attributes:
      what: `STRUCTURE`, `TENSORS`, `DIGESTS` or `RESULT`.
      attempt: see `Ask`.
      step: at whose begin the state is copied, or whose result it is of.
      offset: of these bytes within the whole.
      total: bytes of the whole, from all donors.
      counted: steps that count at the donor, as this is sent.
      mark: of the whole, the same in all its parts. A step that was summed anew has another result, to
        rounding, at those who did so than at one that was lost meanwhile.
    """

    what: int
    attempt: int
    step: int
    offset: int
    total: int
    counted: int
    mark: int
    body: bytes | bytearray | memoryview

    def encoded(self, *, pack: bool) -> bytes:
        """As it crosses; with `pack` shorter, if that makes it so."""
        body = packing.pack(self.body) if pack else None
        what = self.what if body is None else self.what | _PACKED
        numbers = (what, self.attempt, self.step, self.offset, self.total, self.counted, self.mark)
        return _HEAD.pack(CHUNK, *numbers) + bytes(self.body if body is None else body)

    @classmethod
    def read(cls, data: bytes | bytearray) -> Chunk:
        """The inverse. Raises DataError for what is none."""
        if len(data) < _HEAD.size:
            raise DataError("what came is no part of a state: it is too short")
        _, what, attempt, step, offset, total, counted, mark = _HEAD.unpack_from(data)
        body: bytes | memoryview = memoryview(data)[_HEAD.size :]
        if what & _PACKED:
            what, body = what & ~_PACKED, packing.unpack(body, CHUNK_BYTES)
        if what > RESULT or offset + len(body) > total:
            raise DataError("what came is no part of a state: it ends behind the whole, or is of no kind")
        return cls(what, attempt, step, offset, total, counted, mark, body)
