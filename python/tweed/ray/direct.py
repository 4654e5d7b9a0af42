"""The tensor transport "tweed" of Ray Direct Transport: tensors behind Ray's own refs travel as objects do.

    source actor: a task returns tensors ──> copied into an object; its ref goes with Ray's words about them
    other actors: the ref is an argument, or ray.get ──> the object is got, along the tree that forms

Ray counts references and says when the object may go. To whom it goes, and from whom, is the directory's:
whoever has its beginning feeds others, so many that get it do not wait for the source's link.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from ray._private.ray_constants import RDT_FETCH_FAIL_TIMEOUT_SECONDS as _RAY_S
from ray.experimental import register_tensor_transport as _register
from ray.experimental.rdt import CommunicatorMetadata, TensorTransportManager, TensorTransportMetadata
from ray.experimental.rdt.tensor_transport_manager import FetchRequest
from ray.experimental.rdt.util import transport_manager_info
from torch import Tensor

from tweed.errors import UsageError
from tweed.ray.meeting import delete, get, open_objects
from tweed.ray.objects import Ref

_NAME = "TWEED"


def register_tensor_transport() -> None:
    """Makes "tweed" a tensor transport of Ray. Call it in the driver before actors are made; Ray tells them.

    May be called again. CPU tensors of any dtype. Other processes get what was there when the task returned
    or `ray.put` was called: the tensors are copied, once, into the store of their process (`open_objects`),
    and once more out of that of each process that gets them.

    Example:

        tweed.ray.register_tensor_transport()

        @ray.remote(enable_tensor_transport=True)
        class Learner:
            @ray.method(tensor_transport="tweed")
            def weights(self):
                return [param.detach() for param in self.model.parameters()]

        ref = learner.weights.remote()
        ray.get([worker.load.remote(ref) for worker in workers])
    """
    if _NAME not in transport_manager_info:
        _register(_NAME, ["cpu"], TweedTransport, Tensor)


@dataclass
class Described(TensorTransportMetadata):
    """What Ray tells receivers of an object of ours; without a `ref` there are no bytes."""

    ref: Ref | None = None


@dataclass
class _Fetch(FetchRequest):
    """An object on its way, and where it is to go."""

    arrived: concurrent.futures.Future[npt.NDArray[np.uint8]] | None = None


class TweedTransport(TensorTransportManager):
    """See Ray's `TensorTransportManager`. One per process, which Ray makes and calls from several threads.

    Raises, in what gets an object: UsageError if it was deleted; DeadlineExceeded if it has not come within
    Ray's own limit (`RAY_rdt_fetch_fail_timeout_milliseconds`), as where the only process that had it died.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[str, Described] = {}

    def tensor_transport_backend(self) -> str:
        return _NAME

    @staticmethod
    def is_one_sided() -> bool:
        """Whether receivers act alone; they do."""
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        """A transfer that Ray has given up ends by itself, at the same time."""
        return True

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        """Every process that can import this module has it."""
        return True

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> Described:
        """Puts the object. Ray may ask again where a task was tried again: it is put once."""
        with self._lock:
            known = self._made.get(obj_id)
        if known is not None:
            return known
        described = _put(rdt_object)  # waits for room, which others may be about to make: not under the lock
        with self._lock:
            return self._made.setdefault(obj_id, described)

    def get_communicator_metadata(
        self, src_actor: Any, dst_actor: Any, backend: str | None = None
    ) -> CommunicatorMetadata:
        """Processes meet by themselves."""
        return CommunicatorMetadata()

    def fetch_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: Any,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> _Fetch:
        """Begins to get an object."""
        shapes = tensor_transport_metadata.tensor_meta
        into = target_buffers or [torch.empty(shape, dtype=dtype) for shape, dtype in shapes]
        _check_devices(into)
        ref = tensor_transport_metadata.ref
        return _Fetch(obj_id, into, None if ref is None else get(ref, timeout=_RAY_S))

    def wait_fetch_complete(self, fetch_request: Any, timeout: float = -1) -> list[Any]:
        """The tensors of what `fetch_multiple_tensors` began."""
        if fetch_request.arrived is not None:
            flat, end = fetch_request.arrived.result(None if timeout < 0 else timeout), 0
            for into in map(_bytes, fetch_request.tensors):
                begin, end = end, end + into.size
                into[:] = flat[begin:end]
        return list(fetch_request.tensors)

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: Any,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        """Gets the tensors of one object."""
        return self.wait_fetch_complete(
            self.fetch_multiple_tensors(
                obj_id, tensor_transport_metadata, communicator_metadata, target_buffers
            )
        )

    def send_multiple_tensors(
        self, tensors: list[Any], tensor_transport_metadata: Any, communicator_metadata: CommunicatorMetadata
    ) -> None:
        """Ray does not call it where receivers act alone."""
        raise NotImplementedError  # that is of transports in which sources act, too

    def garbage_collect(self, obj_id: str, tensor_transport_meta: Any, tensors: list[Any]) -> None:
        """Nobody has a ref any more."""
        with self._lock:
            self._made.pop(obj_id, None)
        if tensor_transport_meta.ref is not None:
            delete(tensor_transport_meta.ref)

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        """Ray has given up; so has the get, whose time is the same."""


def _put(tensors: Sequence[Tensor]) -> Described:
    _check_devices(tensors)
    parts = [_bytes(tensor) for tensor in tensors]
    described = Described([(tensor.shape, tensor.dtype) for tensor in tensors], "cpu")
    if size := sum(part.size for part in parts):
        writer, end = open_objects().create((size,), np.uint8), 0
        for part in parts:
            begin, end = end, end + part.size
            writer.array[begin:end] = part
            writer.advance(end)
        described.ref = writer.ref
    return described


def _check_devices(tensors: Sequence[Tensor]) -> None:
    if others := sorted({str(tensor.device) for tensor in tensors} - {"cpu"}):
        raise UsageError(
            f"the tensor transport tweed carries CPU tensors, not {' and '.join(others)}: call .cpu() first"
        )


def _bytes(tensor: Tensor) -> npt.NDArray[np.uint8]:
    """The memory of a contiguous tensor, of another one a copy."""
    whole = tensor.detach().resolve_conj().resolve_neg().contiguous()
    flat: npt.NDArray[np.uint8] = whole.reshape(-1).view(torch.uint8).numpy()
    return flat
