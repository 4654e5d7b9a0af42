"""The engine of this process, and tensors in the memory by which it shares with other ranks of its host.

It is made at the first process group, shared by all later ones, and left at exit.
"""

from __future__ import annotations

import atexit
import ctypes
import math
import os
import weakref
from collections.abc import Sequence
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING

import torch

from tweed.errors import ForkedProcess, UsageError
from tweed.torch.options import Options

if TYPE_CHECKING:
    from tweed._core import Node


_STREAMS = 4  # enough to fill a long link whose window is small, few enough for a host of eight ranks
_DOORS = ("secret", "secret_file", "key_file", "dial_only")
_SETTINGS = ("host", "wires_alone", "streams", "congestion", "deadline", "traces", *_DOORS)
_nodes: dict[tuple[object, ...], Node] = {}
_owner: int | None = None  # the process that started them


def node(options: Options | None = None) -> Node:
    """The engine with these settings; starts its threads and its listener at the first call.

    Args:
      options: what concerns links, doors and deadlines counts; a process has one engine for each combination
        it uses, which is one as a rule. `None`: the engine that runs; if none does, by the environment.

    Raises:
      UsageError: there is no secret, and `host` can be reached from other machines; or a secret is no good.
      ForkedProcess: the engine was started in a parent of this process, whose threads a fork does not copy.
    """
    global _owner
    check_not_forked()
    if options is None and _nodes:
        return next(iter(_nodes.values()))
    chosen = options or Options.resolve(None)
    key = tuple(getattr(chosen, name) for name in _SETTINGS)
    if key not in _nodes:
        if _owner is None:
            # Processes of multiprocessing end without atexit, and run these.
            atexit.register(leave)
            Finalize(None, leave, exitpriority=0)
        _owner = os.getpid()
        _nodes[key] = _start(chosen)
    return _nodes[key]


def leave() -> None:
    """Leaves the network in good order, within a second: calls under way end, and peers get what was sent.

    It must run before Python ends, whose last moments no thread of the engine may share. Later calls fail
    by name.
    """
    for engine in _nodes.values():
        engine.leave()


def check_not_forked() -> None:
    """Raises ForkedProcess in a child of the process that started the engine."""
    if _owner is not None and _owner != os.getpid():
        raise ForkedProcess(
            f"the engine was started in process {_owner}, and this process {os.getpid()} is a fork of it; "
            "a fork does not copy its threads. Start processes before the first process group, or with the "
            "start method 'spawn' or 'forkserver'"
        )


def _start(options: Options) -> Node:
    from tweed import _core

    return _core.Node(
        host=options.host or "127.0.0.1", transport="tcp" if options.wires_alone else "auto",
        streams=options.streams or _STREAMS, congestion=options.congestion, deadline_s=options.deadline,
        traces=options.traces, secret=options.secret, secret_file=options.secret_file,
        key_file=options.key_file, dial_only=bool(options.dial_only),
        testbed=os.environ.get("TWEED_TESTBED"),
    )  # fmt: skip


def empty(
    *size: int | Sequence[int], dtype: torch.dtype | None = None, device: str | torch.device = "cpu"
) -> torch.Tensor:
    """An uninitialised tensor in shared memory. Collectives on it skip a copy between ranks of one host.

    Args:
      size: `[*size]`; `tweed.empty(3, 4)` or `tweed.empty((3, 4))`.
      dtype: any; `None`: torch's default.
      device: must be the CPU.

    Returns:
      A contiguous tensor, 64-byte aligned. Its memory is given back when its last view is gone.

    Raises:
      UsageError: another device, or the engine has no shared memory left (names its size).
      ForkedProcess: the engine was started in a parent of this process.

    In a forked child it is a tensor of the child's own, as any other: it has the content at the fork, and
    neither process sees what the other writes later. Where a process holds more than 1 GiB of such memory,
    what torch allocates through the backend included, a page that the child has not written shows what the
    parent writes there, and zeros once the parent has freed the tensor.

    Cost: no copy; pages are taken at the first touch. A fork (each worker of a DataLoader with the start
    method "fork" is one) copies what such memory holds, up to 1 GiB in all, and the parent waits for it.
    """
    if torch.device(device).type != "cpu":
        raise UsageError(f"tweed.empty makes CPU tensors, not {device}; move it with .to() afterwards")
    # `empty(3, 4)` and `empty((3, 4))` mean the same.
    shape = [n for item in size for n in ((item,) if isinstance(item, int) else item)]
    dtype = dtype or torch.get_default_dtype()
    numel = math.prod(shape)
    if numel == 0:
        return torch.empty(shape, dtype=dtype)
    return _view(node(), numel * dtype.itemsize).view(dtype).view(shape)


def _view(engine: Node, size_bytes: int) -> torch.Tensor:
    """A byte tensor over fresh shared memory; frees it with the tensor's storage."""
    address = engine.alloc(size_bytes)
    buffer = (ctypes.c_uint8 * size_bytes).from_address(address)
    weakref.finalize(buffer, engine.free, address).atexit = False  # the process gives all back at its end
    return torch.frombuffer(buffer, dtype=torch.uint8)
