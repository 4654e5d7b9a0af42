"""How the processes of a Ray job come to share objects.

    first call in a process ──> what the job has left with Ray: its secret; the descriptors of all who came
                            ──> links to these; only newcomers look there again

No process has to live for that. A process takes part until it ends; what only it holds is gone then.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy.typing as npt
import ray

from tweed.errors import UsageError
from tweed.ray import job
from tweed.ray.objects import Future, Objects, Reduction, Ref, Writer

#: Under such names are the descriptors of those that came.
_COME = "objects/"
_lock = threading.Lock()
_ours: dict[str, Objects] = {}


def open_objects(capacity: int = 1 << 30) -> Objects:
    """This process's part in the objects of its Ray job, made at the first call; `put` and `get` call it.

    Args:
      capacity: bytes that objects may take here; counts at the first call only.

    Raises: UsageError if Ray is not initialised here.

    Cost: the first call of a process asks Ray four times, and calls all others.
    """
    if not ray.is_initialized():
        raise UsageError("objects are shared within a Ray job: call ray.init() first")
    ours = ray.get_runtime_context().get_job_id()
    with _lock:
        if ours not in _ours:
            _ours[ours] = _join(capacity)
        return _ours[ours]


def _join(capacity: int) -> Objects:
    here: str = os.environ.get("TWEED_HOST") or ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    objects = Objects(address=f"{here}:0", secret=job.secret(), capacity=capacity)
    # Before it looks: of two that come at once, one sees the other.
    job.leave(_COME + objects.descriptor.hex())
    for missed in objects.meet([bytes.fromhex(known) for known in job.names(_COME)]):
        job.remove(_COME + missed.hex())
    if ray.get_runtime_context().worker.mode == ray.SCRIPT_MODE:
        atexit.register(_end)  # before Ray's own, which was registered earlier
    return objects


def _end() -> None:
    """The driver ends, and with it the job."""
    if ray.is_initialized():
        job.remove(_COME, folder=True)


def put(value: Any, ref: Ref | None = None, *, timeout: float = 60.0) -> Ref:
    """`Objects.put`, among the processes of this Ray job."""
    return open_objects().put(value, ref, timeout=timeout)


def get(ref: Ref, *, timeout: float | None = None) -> Future[Any]:
    """`Objects.get`, among the processes of this Ray job."""
    return open_objects().get(ref, timeout=timeout)


def reduce(refs: Sequence[Ref], count: int | None = None, op: str = "sum", **how: Any) -> Reduction:
    """`Objects.reduce`, among the processes of this Ray job."""
    return open_objects().reduce(refs, count, op, **how)


def create(shape: Sequence[int], dtype: npt.DTypeLike = "float32", ref: Ref | None = None) -> Writer:
    """`Objects.create`, among the processes of this Ray job."""
    return open_objects().create(shape, dtype, ref)


def blocks(ref: Ref, *, timeout: float | None = None) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """`Objects.blocks`, among the processes of this Ray job."""
    return open_objects().blocks(ref, timeout=timeout)


def delete(ref: Ref) -> None:
    """`Objects.delete`, among the processes of this Ray job."""
    open_objects().delete(ref)
