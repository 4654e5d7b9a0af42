"""What comes behind heads about aggregators: who sends what to whom, and sums.

Gather      the parts that will come, as JSON: of each its member, task, worker, bytes, key, and norm
ModelGrant  the key of the member that may fetch
Task, Grant where the member that they name listens: "KEY@host:port", or nothing if it is gone
Sum         the bytes of a description as JSON, in four; the description; and the values as float32
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tweed.errors import DataError, UsageError
from tweed.hub.wire.messages import Sum
from tweed.links.address import HubAddress

#: A body that is neither a model nor a payload nor a sum is never longer.
MOST_BYTES = 1 << 22
#: What describes a task of a sum is never longer.
_TASK_BYTES = 96
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Part:
    """What a member is going to send to an aggregator.

    Attributes:
      member, number: whose, and of which task.
      worker: which worker it is, by which it has encoded.
      numbytes: that it has announced.
      key: who it is, 64 hex digits.
      norm: of what it stands for, as it has announced; not a number: it has not.
    """

    member: int
    number: int
    worker: int
    numbytes: int
    key: str
    norm: float = math.nan

    @property
    def task(self) -> tuple[int, int]:
        """As a `Gather` names it."""
        return self.member, self.number


def pack_parts(parts: Sequence[Part]) -> bytes:
    """The parts as bytes, as they cross a link."""
    rows = [[part.member, part.number, part.worker, part.numbytes, part.key, part.norm] for part in parts]
    return json.dumps(rows).encode()


def read_parts(data: bytes | bytearray | memoryview) -> list[Part]:
    """The inverse. Raises DataError for what is none."""
    rows = _json(data)
    if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == 6 for row in rows):
        raise DataError("what came does not say who is going to send")
    for row in rows:
        numbers = all(_is_number(one) for one in row[:4])
        if not (numbers and isinstance(row[4], str) and isinstance(row[5], int | float)):
            raise DataError(f"what came is no part of a group: {row!r}")
    return [Part(*row) for row in rows]


def read_address(data: bytes | bytearray | memoryview) -> HubAddress | None:
    """Where a member listens; None: it is gone. Raises DataError for what is no address."""
    try:
        return HubAddress.parse(bytes(data).decode()) if data else None
    except (UnicodeDecodeError, UsageError) as error:
        raise DataError(f"what came is no address of a member: {error}") from None


def sum_room(numel: int, tasks: int) -> int:
    """No sum of so many tasks has more bytes."""
    return _LENGTH.size + 4 * numel + _TASK_BYTES * (tasks + 1)


def most_sum_bytes(numel: int) -> int:
    """No sum has more, whoever may be in it."""
    return _LENGTH.size + 4 * numel + MOST_BYTES


def pack_sum(found: Sum) -> bytes:
    """A sum as bytes, as it crosses a link."""
    said = {"tasks": found.tasks, "left_out": found.left_out, "took_s": found.took_s}
    described = json.dumps(said).encode()
    values = found.value.to(torch.float32).contiguous().numpy()
    return b"".join((_LENGTH.pack(len(described)), described, values))


def read_sum(group: float, data: Tensor, numel: int) -> Sum:
    """The inverse: `data` is `[bytes]` uint8. Raises DataError for what is no sum of `numel` numbers."""
    raw = data.numpy()
    described = _LENGTH.unpack(raw[: _LENGTH.size].tobytes())[0] if raw.size >= _LENGTH.size else raw.size
    end = _LENGTH.size + described
    if raw.size - end != 4 * numel or not math.isfinite(group):
        raise DataError(f"a sum of {numel} numbers has {4 * numel} bytes, and {raw.size - end} came")
    said = _json(raw[_LENGTH.size : end].tobytes())
    if not isinstance(said, dict) or set(said) != {"tasks", "left_out", "took_s"}:
        raise DataError("what came does not say of what it is the sum")
    tasks, left_out, took_s = _tasks(said["tasks"]), _tasks(said["left_out"]), said["took_s"]
    if not isinstance(took_s, list) or not all(isinstance(one, int | float) for one in took_s):
        raise DataError(f"what came does not say how long its parts took: {took_s!r}")
    value = torch.from_numpy(raw[end:].copy().view("<f4"))
    return Sum(int(group), tasks, value, left_out, tuple(map(float, took_s)))


def _tasks(rows: Any) -> tuple[tuple[int, int], ...]:
    pairs = isinstance(rows, list) and all(isinstance(row, list) and len(row) == 2 for row in rows)
    if not pairs or not all(_is_number(one) for row in rows for one in row):
        raise DataError(f"what came are no tasks: {rows!r}")
    return tuple((member, number) for member, number in rows)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _json(data: bytes | bytearray | memoryview) -> Any:
    try:
        return json.loads(bytes(data), parse_constant=lambda text: math.nan)
    except (ValueError, RecursionError) as error:
        raise DataError(f"what came cannot be read: {error}") from None
