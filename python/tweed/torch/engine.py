"""The engine's table of C functions, for Python: the mirror of csrc/engine.h.

The Python process group calls the same table as the C++ backend, so the two can meet in one group.
"""

from __future__ import annotations

import ctypes as c
import functools
from enum import IntEnum

import torch

from tweed import errors

ABI = 1
ANY_RANK = 2**32 - 1


class Operation(IntEnum):
    """The operations of the engine: `tweed_operation` of csrc/engine.h."""

    ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, REDUCE, GATHER, SCATTER, ALL_TO_ALL = range(8)
    SEND, RECV, BARRIER = 8, 9, 10


class Status(IntEnum):
    """How an operation stands: `tweed_status` of csrc/engine.h."""

    OK, PENDING, USAGE, SHAPE_MISMATCH, PEER_LOST, DEADLINE, ABORTED, FORKED = range(8)


ERRORS: dict[int, type[errors.TweedError]] = {
    Status.USAGE: errors.UsageError,
    Status.SHAPE_MISMATCH: errors.ShapeMismatch,
    Status.PEER_LOST: errors.PeerLost,
    Status.DEADLINE: errors.DeadlineExceeded,
    Status.ABORTED: errors.Aborted,
    Status.FORKED: errors.ForkedProcess,
}

_NUMBERED = (
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool),
)
DTYPES = {dtype: number for number, dtype in enumerate(_NUMBERED)}
BYTES = len(DTYPES)  # what is moved and never reduced


class Segment(c.Structure):
    """A piece of memory: `tweed_segment` of csrc/engine.h."""

    _fields_ = (("data", c.c_void_p), ("bytes", c.c_uint64))


class Request(c.Structure):
    """What an operation is asked to do: `tweed_request` of csrc/engine.h."""

    _fields_ = (
        ("operation", c.c_uint32),
        ("dtype", c.c_uint32),
        ("reduce_op", c.c_uint32),
        ("root", c.c_uint32),
        ("tag", c.c_uint64),
        ("urgency", c.c_int32),
        ("blocking", c.c_uint32),
        ("factor", c.c_double),
        ("timeout_ms", c.c_int64),
        ("inputs", c.POINTER(Segment)),
        ("n_inputs", c.c_size_t),
        ("outputs", c.POINTER(Segment)),
        ("n_outputs", c.c_size_t),
        ("shape", c.c_char_p),
    )


Callback = c.CFUNCTYPE(None, c.c_void_p)


class Table(c.Structure):
    """tweed_table. ctypes lets go of the GIL during every call."""

    _fields_ = (
        ("abi", c.c_uint32),
        ("group_retain", c.CFUNCTYPE(c.c_void_p, c.c_void_p)),
        ("group_release", c.CFUNCTYPE(None, c.c_void_p)),
        ("submit", c.CFUNCTYPE(c.c_void_p, c.c_void_p, c.POINTER(Request))),
        ("wait", c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_int64)),
        ("test", c.CFUNCTYPE(c.c_int, c.c_void_p)),
        ("on_end", c.CFUNCTYPE(None, c.c_void_p, Callback, c.c_void_p)),
        ("message", c.CFUNCTYPE(c.c_char_p, c.c_void_p)),
        ("source", c.CFUNCTYPE(c.c_uint32, c.c_void_p)),
        ("release", c.CFUNCTYPE(None, c.c_void_p)),
        ("abort", c.CFUNCTYPE(None, c.c_void_p, c.c_char_p)),
        ("alloc", c.CFUNCTYPE(c.c_void_p, c.c_void_p, c.c_uint64)),
        ("free", c.CFUNCTYPE(None, c.c_void_p, c.c_void_p)),
    )


@functools.cache
def table(address: int) -> Table:
    """The table at `address`, as `tweed._core.engine_table` gives it.

    Raises:
      UsageError: extension module and Python files are of different versions.
    """
    found = Table.from_address(address)
    if found.abi != ABI:
        raise errors.UsageError(f"the engine's table has version {found.abi}, not {ABI}; reinstall tweed")
    return found
