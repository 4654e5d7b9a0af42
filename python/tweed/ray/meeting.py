"""How the processes of a Ray job come to share objects: by one named actor, which the first call makes.

    first call in a process ──> actor `tweed/objects/<job>`: the job's secret; who has come before
                            ──> links to all of these; the actor is not needed again

The actor knows no object. It is detached, so that it outlives the worker that happened to make it, and the
driver ends it. A process takes part until it ends; what only it holds is gone then.
"""

from __future__ import annotations

import atexit
import os
import secrets
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy.typing as npt
import ray

from tweed.errors import UsageError
from tweed.ray.objects import Future, Objects, Reduction, Ref, Writer

_NAMESPACE = "tweed"
_lock = threading.Lock()
_ours: dict[str, Objects] = {}


class Meeting:
    """The actor: a list of descriptors, and the secret that admits to the job's objects."""

    def __init__(self) -> None:
        self._secret, self._descriptors = secrets.token_hex(32), list[bytes]()

    def secret(self) -> str:
        """What admits."""
        return self._secret

    def join(self, descriptor: bytes) -> list[bytes]:
        """A process has come. Returns those before it."""
        before = list(self._descriptors)
        self._descriptors.append(descriptor)
        return before

    def forget(self, descriptors: Sequence[bytes]) -> None:
        """These cannot be reached any more."""
        self._descriptors = [known for known in self._descriptors if known not in descriptors]


def open_objects(capacity: int = 1 << 30) -> Objects:
    """This process's part in the objects of its Ray job, made at the first call; `put` and `get` call it.

    Args:
      capacity: bytes that objects may take here; counts at the first call only.

    Raises: UsageError if Ray is not initialised here.

    Cost: the first call of a job starts an actor, that of a process asks it twice and calls all others.
    """
    if not ray.is_initialized():
        raise UsageError("objects are shared within a Ray job: call ray.init() first")
    context = ray.get_runtime_context()
    job = context.get_job_id()
    with _lock:
        if job not in _ours:
            _ours[job] = _join(job, capacity)
        return _ours[job]


def _join(job: str, capacity: int) -> Objects:
    name = f"objects/{job}"
    options: dict[str, Any] = {"lifetime": "detached", "num_cpus": 0, "max_concurrency": 1}
    remote: Any = ray.remote(Meeting)
    actor = remote.options(name=name, namespace=_NAMESPACE, get_if_exists=True, **options).remote()
    here: str = os.environ.get("TWEED_HOST") or ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    objects = Objects(address=f"{here}:0", secret=ray.get(actor.secret.remote()), capacity=capacity)
    if missed := objects.meet(ray.get(actor.join.remote(objects.descriptor))):
        actor.forget.remote(list(missed))
    if ray.get_runtime_context().worker.mode == ray.SCRIPT_MODE:
        atexit.register(_end, name)  # before Ray's own, which was registered earlier
    return objects


def _end(name: str) -> None:
    if ray.is_initialized():
        ray.kill(ray.get_actor(name, _NAMESPACE))


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
