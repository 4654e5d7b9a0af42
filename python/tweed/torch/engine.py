"""The engine's table of C functions, for Python: the mirror of csrc/engine.h.

The Python process group calls the same table as the C++ backend, so the two can meet in one group.
"""

from __future__ import annotations

import functools
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from enum import IntEnum

import torch

from tweed import errors

ABI = 1
ANY_RANK = 2**32 - 1


class Operation(IntEnum):
    """tweed_operation."""

    ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, REDUCE, GATHER, SCATTER, ALL_TO_ALL = range(8)
    SEND, RECV, BARRIER = 8, 9, 10


class Status(IntEnum):
    """tweed_status."""

    OK, PENDING, USAGE, SHAPE_MISMATCH, PEER_LOST, DEADLINE, ABORTED, FORKED = range(8)


ERRORS: dict[int, type[errors.TweedError]] = {
    Status.USAGE: errors.UsageError,
    Status.SHAPE_MISMATCH: errors.ShapeMismatch,
    Status.PEER_LOST: errors.PeerLost,
    Status.DEADLINE: errors.DeadlineExceeded,
    Status.ABORTED: errors.Aborted,
    Status.FORKED: errors.ForkedProcess,
}

BYTES = 13  # what is moved and never reduced
DTYPES = {
    torch.float16: 0,
    torch.bfloat16: 1,
    torch.float32: 2,
    torch.float64: 3,
    torch.int8: 4,
    torch.int16: 5,
    torch.int32: 6,
    torch.int64: 7,
    torch.uint8: 8,
    torch.uint16: 9,
    torch.uint32: 10,
    torch.uint64: 11,
    torch.bool: 12,
}


class Segment(Structure):
    """tweed_segment."""

    _fields_ = (("data", c_void_p), ("bytes", c_uint64))


class Request(Structure):
    """tweed_request."""

    _fields_ = (
        ("operation", c_uint32),
        ("dtype", c_uint32),
        ("reduce_op", c_uint32),
        ("root", c_uint32),
        ("tag", c_uint64),
        ("priority", c_int32),
        ("blocking", c_uint32),
        ("factor", c_double),
        ("timeout_ms", c_int64),
        ("inputs", POINTER(Segment)),
        ("n_inputs", c_size_t),
        ("outputs", POINTER(Segment)),
        ("n_outputs", c_size_t),
        ("shape", c_char_p),
    )


Callback = CFUNCTYPE(None, c_void_p)


class Table(Structure):
    """tweed_table. ctypes lets go of the GIL during every call."""

    _fields_ = (
        ("abi", c_uint32),
        ("group_retain", CFUNCTYPE(c_void_p, c_void_p)),
        ("group_release", CFUNCTYPE(None, c_void_p)),
        ("submit", CFUNCTYPE(c_void_p, c_void_p, POINTER(Request))),
        ("wait", CFUNCTYPE(c_int, c_void_p, c_int64)),
        ("test", CFUNCTYPE(c_int, c_void_p)),
        ("on_end", CFUNCTYPE(None, c_void_p, Callback, c_void_p)),
        ("message", CFUNCTYPE(c_char_p, c_void_p)),
        ("source", CFUNCTYPE(c_uint32, c_void_p)),
        ("release", CFUNCTYPE(None, c_void_p)),
        ("abort", CFUNCTYPE(None, c_void_p, c_char_p)),
        ("alloc", CFUNCTYPE(c_void_p, c_void_p, c_uint64)),
        ("free", CFUNCTYPE(None, c_void_p, c_void_p)),
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
