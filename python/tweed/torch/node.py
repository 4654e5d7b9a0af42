"""The engine of this process.

It is made at the first process group, shared by all later ones, and left at exit.
"""

from __future__ import annotations

import atexit
import os
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING

from tweed.errors import ForkedProcess
from tweed.torch.options import Options

if TYPE_CHECKING:
    from tweed._core import Node


_STREAMS = 4  # enough to fill a long link whose window is small, few enough for a host of eight ranks
_DOORS = ("secret", "secret_file", "key_file", "dial_only", "ports")
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
    """Leaves the network in good order: calls under way end, and peers get what was sent.

    Within a second; within six where the network loses what is said last, again and again, and within eleven
    where others still talk through this process.
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
        host=options.host or "127.0.0.1",
        transport="tcp" if options.wires_alone else "auto",
        streams=options.streams or _STREAMS,
        congestion=options.congestion,
        deadline_s=options.deadline,
        traces=options.traces,
        secret=options.secret,
        secret_file=options.secret_file,
        key_file=options.key_file,
        dial_only=bool(options.dial_only),
        testbed=os.environ.get("TWEED_TESTBED"),
        ports=options.ports_range(),
    )
