"""The log of a hub: every event that its machine was given, in a file that only grows.

    file      = "tweed hub log 4\\n", records
    record    = length, checksum of the body, checksum of these two; then the body, of that length
    body      = kind, three numbers, and what belongs to that kind
    Began       a process begins to serve here, with this model and state
    (events)    see `events`: written before the machine has them
    Committed   what the model is after a step: a check, no event

A record goes to the kernel before anything comes of it. So a process that is killed leaves at most its last
record unfinished, and its log may be one event ahead of what its members heard. A record that cannot be
written whole, as on a full disk, is taken back. What a machine that loses power leaves is up to its file
system: nothing here waits for the disk.

`EventLog` writes, and goes on behind the last whole record. `LoggedEvents` reads; a last record that is
unfinished is left out, any other damage is named with its place.
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from tweed.errors import DataError, UsageError
from tweed.exchange import encoding
from tweed.exchange.checkpoint import plain
from tweed.hub.machine.events import Able, Answered, Came, Event, Joined, Left, Passed
from tweed.hub.wire.head import HEAD, from_worker, head_of
from tweed.hub.wire.messages import FromWorker, Offer, Payload, Resume, Sum

_TITLE, _FORMAT = b"tweed hub log ", 4
_FRAME, _CHECK = struct.Struct("<QI"), struct.Struct("<I")
_FRAME_BYTES = _FRAME.size + _CHECK.size
_BODY = struct.Struct("<Bqqd")
#: What reading a body raises that is whole, and is none.
_NO_RECORD = (DataError, ValueError, KeyError, TypeError, RuntimeError, struct.error)
_BEGAN, _JOINED, _LEFT, _CAME, _PASSED, _ANSWERED, _COMMITTED, _CAME_WHOLE, _ABLE = range(9)


@dataclass(frozen=True, slots=True)
class Began:
    """A process begins to serve: all that there was before its first event.

    Attributes:
      terms: of model and strategy, a line each.
      workers: that the hub counts on.
      state: of the hub's exchange, as it is kept in a checkpoint.
      params: values of those that are trained.
      optimizer: its state.
      software: on which bits may depend: versions, and threads.
    """

    terms: tuple[str, ...]
    workers: int
    state: Mapping[str, Any]
    params: Sequence[Tensor]
    optimizer: Mapping[str, Any]
    software: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Committed:
    """The model of this version has values with this checksum: see `checksum`."""

    version: int
    checksum: int


Record = Began | Event | Committed


def checksum(values: Tensor) -> int:
    """The checksum of `[numel]` values, as they are in memory."""
    return zlib.crc32(values.contiguous().numpy().data)


def software() -> dict[str, str]:
    """On what the bits of sums may depend, besides what is computed."""
    threads = str(torch.get_num_threads())
    return {
        "torch": str(torch.__version__),
        "processor": torch.backends.cpu.get_cpu_capability(),
        "threads": threads,
    }


class EventLog:
    """See above.

    Args:
      path: a file that is there is gone on with, behind its last whole record.

    Raises:
      UsageError: it is no log, one of another format, or another process writes to it.
      DataError: it is damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self._file = self.path.open("a+b", buffering=0)  # what is taken back may not wait in a buffer
        try:
            self._lock()
            self._file.seek(0)
            if self._file.read(1):
                self._file.truncate(_end(self._file, self.path))
            else:
                self._write(_TITLE + b"%d\n" % _FORMAT)
        except BaseException:
            self._file.close()
            raise

    def append(self, record: Record) -> None:
        """Hands it to the kernel. Raises OSError; the log is whole then, and ends before this record."""
        fixed, rest = _packed(record)
        body_check = zlib.crc32(rest, zlib.crc32(fixed))
        frame = _FRAME.pack(len(fixed) + len(rest), body_check)
        self._write(frame + _CHECK.pack(zlib.crc32(frame)) + fixed, rest)

    def close(self) -> None:
        """Closes the file of the log."""
        self._file.close()

    def _write(self, *parts: bytes | bytearray | memoryview) -> None:
        """All of them or nothing."""
        end = self._file.seek(0, os.SEEK_END)
        try:
            for part in parts:
                rest = memoryview(part)
                while rest:
                    rest = rest[self._file.write(rest) :]
        except BaseException as error:
            self._file.truncate(end)
            if isinstance(error, OSError):
                text = f"{error.strerror}: the log is whole without this record. Make room, and serve again"
                raise OSError(error.errno, text, str(self.path)) from error
            raise

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(
                f"another process writes the log {self.path}: end that hub, or give this one another log"
            ) from None


class LoggedEvents:
    """The records of a log, in order.

    Attributes:
      path: of the log.
      unfinished_bytes: at its end, of a record that was being written; known when all were read.

    Raises: as `EventLog`, and DataError for a file that cannot be read, while it is read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path, self.unfinished_bytes = Path(path), 0

    def __iter__(self) -> Iterator[Record]:
        try:
            with self.path.open("rb") as file:
                for place, (at, body) in enumerate(_bodies(file, self.path)):
                    yield self._record(place, at, body)
                self.unfinished_bytes = os.fstat(file.fileno()).st_size - file.tell()
        except OSError as error:
            raise DataError(f"the log {self.path} cannot be read: {error}") from error

    def _record(self, place: int, at: int, body: bytearray) -> Record:
        try:
            return _unpacked(body)
        except _NO_RECORD as error:
            raise DataError(
                f"record {place} of the log {self.path}, at byte {at}, is not valid: {error}"
            ) from None


def _frames(file: BinaryIO, path: Path) -> Iterator[tuple[int, int, int]]:
    """Yields where the body of every record begins, how long it is, and its checksum. Whoever takes one may
    read on; the next one is looked for behind the body. At the end the file stands behind the last whole
    one."""
    file.seek(0)
    _check_title(file.readline(64), path)
    at, size = file.tell(), os.fstat(file.fileno()).st_size
    while at + _FRAME_BYTES <= size:
        file.seek(at)
        frame, check = file.read(_FRAME.size), file.read(_CHECK.size)
        length, body_check = _FRAME.unpack(frame)
        if _CHECK.unpack(check)[0] != zlib.crc32(frame):
            raise DataError(_damage(path, at))
        if at + _FRAME_BYTES + length > size:
            break
        yield at + _FRAME_BYTES, length, body_check
        at += _FRAME_BYTES + length
    file.seek(at)


def _bodies(file: BinaryIO, path: Path) -> Iterator[tuple[int, bytearray]]:
    for at, length, check in _frames(file, path):
        body = bytearray(length)  # which a tensor may be made of
        if file.readinto(body) != length or zlib.crc32(body) != check:  # type: ignore[attr-defined]
            raise DataError(_damage(path, at))
        yield at, body


def _end(file: BinaryIO, path: Path) -> int:
    """Where the last whole record ends. Bodies are not read."""
    for _ in _frames(file, path):
        pass
    return file.tell()


def _check_title(line: bytes, path: Path) -> None:
    if not (line.startswith(_TITLE) and line.endswith(b"\n")):
        raise UsageError(f"{path} is not the log of a hub: give the file that run.serve(log=...) has written")
    if (found := line.removeprefix(_TITLE).strip()) != b"%d" % _FORMAT:
        raise UsageError(
            f"the log {path} has format {found.decode(errors='replace')}, and this version of tweed reads "
            f"{_FORMAT}: take the version that wrote it, or another file"
        )


def _damage(path: Path, at: int) -> str:
    return (
        f"the log {path} is damaged at byte {at}: what is there is not what was written. Take a copy that is "
        "whole, or what was before"
    )


# Bodies


def _packed(record: Record) -> tuple[bytes, bytes | bytearray | memoryview]:
    """The fixed part of a body, and what follows it."""
    if isinstance(record, Came):
        return _packed_message(record)
    if isinstance(record, Passed):
        return _BODY.pack(_PASSED, 0, 0, record.now), b""
    if isinstance(record, Joined):
        return _BODY.pack(_JOINED, record.member, record.worker, record.now), b""
    if isinstance(record, Able):
        return _BODY.pack(_ABLE, record.member, 0, record.now), b""
    if isinstance(record, Left):
        return _BODY.pack(_LEFT, record.member, 0, record.now), b""
    if isinstance(record, Committed):
        return _BODY.pack(_COMMITTED, record.version, record.checksum, 0.0), b""
    if isinstance(record, Answered):
        return _BODY.pack(_ANSWERED, 0, 0, record.now), encoding.packed(record.answer)
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    return _BODY.pack(_BEGAN, 0, 0, 0.0), encoding.packed(values)


def _packed_message(came: Came) -> tuple[bytes, bytes | bytearray | memoryview]:
    """As it crossed, and of an offer what the hub knows of the model; a sum, and what is sent again, as its
    fields."""
    message = came.message
    if isinstance(message, Sum | Resume):
        fixed = _BODY.pack(_CAME_WHOLE, came.member, 0, came.now)
        return fixed, encoding.packed({"kind": type(message).__name__, "fields": plain(message)})
    value = message.value if isinstance(message, Payload) else torch.empty(0)
    data = value.contiguous().view(torch.uint8).numpy().data
    model_bytes = message.model_bytes if isinstance(message, Offer) else 0
    head = HEAD.pack(*head_of(message, data.nbytes))
    return _BODY.pack(_CAME, came.member, model_bytes, came.now) + head, data


def _unpacked(body: bytearray) -> Record:
    """The inverse. Raises `_NO_RECORD` for what is none."""
    kind, first, second, now = _BODY.unpack_from(body)
    if kind == _CAME:
        return Came(first, _message(body, second), now)
    if kind == _PASSED:
        return Passed(now)
    if kind == _JOINED:
        return Joined(first, second, now)
    if kind == _ABLE:
        return Able(first, now)
    if kind == _LEFT:
        return Left(first, now)
    if kind == _COMMITTED:
        return Committed(first, second)
    if kind == _ANSWERED:
        return Answered(_loaded(body), now)
    if kind == _CAME_WHOLE:
        return Came(first, _whole_message(_loaded(body)), now)
    if kind == _BEGAN:
        return Began(**_loaded(body))
    raise DataError(f"there is no record of kind {kind}")


def _message(body: bytearray, model_bytes: int) -> FromWorker:
    begin = _BODY.size + HEAD.size
    empty = len(body) == begin
    payload = (
        torch.empty(0, dtype=torch.uint8)
        if empty
        else torch.frombuffer(body, dtype=torch.uint8, offset=begin)
    )
    message = from_worker(HEAD.unpack_from(body, _BODY.size), payload)
    return replace(message, model_bytes=model_bytes) if isinstance(message, Offer) else message


def _whole_message(saved: Mapping[str, Any]) -> FromWorker:
    values = dict(saved["fields"])
    if saved["kind"] == "Resume":
        return Resume(Offer(**values["offer"]), values["version"])
    pairs = {name: tuple(map(tuple, values[name])) for name in ("tasks", "left_out")}
    return Sum(**{**values, **pairs, "took_s": tuple(values["took_s"])})


def _loaded(body: bytearray) -> Any:
    return encoding.unpacked(memoryview(body)[_BODY.size :])
