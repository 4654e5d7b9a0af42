"""Plain values, tensors and arrays as bytes, and back. What is read makes nothing but these.

    message   = bytes of the structure, as 8 bytes; structure; the bytes of all tensors, in order
    structure = JSON; what JSON has no form for is {kind: content}, as {"tensor": ["float32", 2, 3]}

Not as `torch.save` writes them. `torch.load` with `weights_only=True` runs no code of who wrote it, but lets
a kilobyte take gigabytes of memory (a `bytearray` of any length, compressed records). And equal values have
other bytes there: which of equal objects are one depends on the past of a process.

Pure: no group, no file.
"""

from __future__ import annotations

import json
import math
import struct
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tweed.errors import DataError, UsageError

#: A structure has at most so many bytes; what Python makes of it takes some twenty times as much memory.
STRUCTURE_BYTES = 1 << 24
#: A state has at most so many times the bytes of the model, and so many more: optimizers' grow, that of
#: L-BFGS with the default history to 200 times the model.
_MOST_TIMES, _MOST_MORE = 256, 1 << 26

_DIMS = 64  # of a tensor: torch's own limit

_HEAD = struct.Struct("<Q")
_MAPPINGS: dict[str, Any] = {"dict": dict, "OrderedDict": OrderedDict, "Counter": Counter}
_SEQUENCES: dict[str, Any] = {"tuple": tuple, "Size": torch.Size, "set": set}
#: Types of numpy's arrays that torch has too, in the byte order of this machine.
_ARRAYS = {
    *map(np.dtype, ("bool", "complex64", "complex128", "float16", "float32", "float64")),
    *(np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)),
}
_DTYPES = {str(one): one for one in vars(torch).values() if isinstance(one, torch.dtype)}


def most_state_bytes(own_bytes: int) -> int:
    """How long a state may be that others give to a process whose own model or state has `own_bytes`."""
    return _MOST_TIMES * own_bytes + _MOST_MORE


def packed(value: Any, classes: Sequence[type] | None = None) -> bytearray:
    """`value` as a message: numbers, texts, bytes, None, tensors, numpy's arrays and scalars, dtypes,
    dataclasses, and dicts, lists, tuples and sets of them.

    Args:
      classes: dataclasses that may be in it; None: any.

    Raises: UsageError for anything else in it.
    Cost: a copy of the tensors.
    """
    head, tensors = structure(value, classes)
    return bytearray().join([_HEAD.pack(len(head)), head, *map(as_bytes, tensors)])


def unpacked(message: bytes | bytearray | memoryview, classes: Sequence[type] = ()) -> Any:
    """The inverse of `packed`; tensors are on the CPU, and have memory of their own.

    Args:
      classes: dataclasses that may be in it.

    Raises: DataError for any other bytes.
    """
    data = memoryview(message)
    if len(data) < _HEAD.size or _HEAD.unpack_from(data)[0] > len(data) - _HEAD.size:
        raise DataError(f"it cannot be read: its {len(data)} bytes are less than a structure")
    end = _HEAD.size + _HEAD.unpack_from(data)[0]
    return assembled(data[_HEAD.size : end], data[end:], classes)


def structure(value: Any, classes: Sequence[type] | None = None) -> tuple[bytes, list[Tensor]]:
    """All of `value` but the bytes of tensors, and the tensors in order. Args, Raises: see `packed`."""
    writer = _Writer(classes)
    head = json.dumps(writer.plain(value), separators=(",", ":"))
    return head.encode(), writer.tensors


def assembled(
    head: bytes | bytearray | memoryview,
    tensors: bytes | bytearray | memoryview,
    classes: Sequence[type] = (),
) -> Any:
    """The inverse, with the bytes of the tensors. Raises: see `unpacked`."""
    if len(head) > STRUCTURE_BYTES:
        raise DataError(f"its structure has {len(head)} bytes, and {STRUCTURE_BYTES} at most are read")
    reader = _Reader(memoryview(tensors), {one.__name__: one for one in classes})
    try:
        value = reader.value(json.loads(bytes(head)))
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise DataError(f"it cannot be read: {type(error).__name__}: {str(error)[:200]}") from None
    if reader.at != len(tensors):
        raise DataError(f"its tensors have {len(tensors)} bytes, and its structure says {reader.at}")
    return value


def as_bytes(tensor: Tensor) -> memoryview:
    """Its elements, in order."""
    flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy().data) if flat.numel() else memoryview(b"")


def from_bytes(data: bytearray, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
    """A tensor of this type and shape, which owns `data`."""
    if not data:
        return torch.empty(shape, dtype=dtype, device="cpu")
    return torch.frombuffer(data, dtype=torch.uint8).view(dtype).reshape(shape)


class _Writer:
    """Makes of a value what JSON has a form for; `tensors` get those in it."""

    def __init__(self, classes: Sequence[type] | None) -> None:
        self.tensors: list[Tensor] = []
        self._classes = classes

    def plain(self, value: Any) -> Any:
        match value:
            case None | bool() | int() | float() | str():
                return value
            case Tensor() if value.layout is torch.strided:
                self.tensors.append(value)
                return {"tensor": [str(value.dtype), *value.shape]}
            case np.ndarray() | np.generic() if value.dtype in _ARRAYS:
                self.tensors.append(torch.from_numpy(np.array(value, order="C")))
                kind = "array" if isinstance(value, np.ndarray) else "scalar"
                return {kind: [value.dtype.name, *value.shape]}
            case dict():
                pairs = [[self.plain(key), self.plain(one)] for key, one in value.items()]
                return {_kind(value, _MAPPINGS, "dict"): pairs}
            case list():
                return [self.plain(one) for one in value]
            case tuple() | set():
                return {_kind(value, _SEQUENCES, "tuple"): [self.plain(one) for one in value]}
            case bytes() | bytearray():
                return {"bytes": value.hex()}
            case torch.dtype():
                return {"dtype": str(value)}
        return self._dataclass(value)

    def _dataclass(self, value: Any) -> Any:
        kind = type(value)
        if is_dataclass(kind) and (self._classes is None or kind in self._classes):
            return {kind.__name__: {one.name: self.plain(getattr(value, one.name)) for one in fields(value)}}
        raise UsageError(
            f"a value of type {kind.__qualname__} is in what other processes are to get, or a file: give "
            "plain values and tensors, or keep it out of the state"
        )


def _kind(value: Any, kinds: Mapping[str, Any], other: str) -> str:
    name = type(value).__name__
    return name if kinds.get(name) is type(value) else other


class _Reader:
    """Makes values of what `_Writer.plain` gave, and of the bytes of tensors, of which it is at byte `at`."""

    def __init__(self, data: memoryview, classes: Mapping[str, Any]) -> None:
        self._data, self._classes, self.at = data, classes, 0

    def value(self, plain: Any) -> Any:
        if isinstance(plain, list):
            return [self.value(one) for one in plain]
        if not isinstance(plain, dict):
            return plain
        ((kind, content),) = plain.items()
        if kind == "tensor":
            return self._tensor(*content)
        if kind in ("array", "scalar"):
            array = self._tensor(f"torch.{content[0]}", *content[1:]).numpy()
            return array if kind == "array" else array[()]
        if kind == "bytes":
            return bytes.fromhex(content)
        if kind == "dtype":
            return _DTYPES[content]
        if kind in _MAPPINGS:
            return _MAPPINGS[kind]({self.value(key): self.value(one) for key, one in content})
        if kind in _SEQUENCES:
            return _SEQUENCES[kind](self.value(content))
        return self._classes[kind](**{name: self.value(one) for name, one in content.items()})

    def _tensor(self, name: str, *shape: int) -> Tensor:
        dtype = _DTYPES[name]
        if len(shape) > _DIMS or not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError(f"a tensor cannot have the shape {shape}")
        begin, self.at = self.at, self.at + math.prod(shape) * dtype.itemsize
        if self.at > len(self._data):
            raise ValueError(
                f"its tensors have {len(self._data)} bytes, and its structure says {self.at} or more"
            )
        return from_bytes(bytearray(self._data[begin : self.at]), dtype, shape)
