"""The backend "tweed" of `ray.util.collective`: our engine's collectives on NumPy arrays and CPU tensors.

Each group stands alone, beside torch's default group and other groups of the process. Rank 0 opens the store
in which all meet and leaves its address where all of the job find it, with the job's secret.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np
import torch
import torch.distributed as dist
from ray.util.collective.backend_registry import register_collective_backend as _register
from ray.util.collective.collective_group.base_collective_group import BaseGroup
from ray.util.collective.types import Backend, ReduceOp
from torch import Tensor
from torch._C._distributed_c10d import (
    AllgatherOptions,
    PrefixStore,
    _DistributedBackendOptions,
)
from torch.distributed.distributed_c10d import GroupName

from tweed.errors import DeadlineExceeded, PeerLost, UsageError
from tweed.exchange.store import join_place, open_store, reach_store, split_place
from tweed.ray import job
from tweed.ray.config import join_network

_LOOK_S = 0.05  # between two looks for rank 0's address
_CALL_S = 1.0  # a store that stands answers in so long
_OPERATORS = {
    ReduceOp.SUM: dist.ReduceOp.SUM,
    ReduceOp.PRODUCT: dist.ReduceOp.PRODUCT,
    ReduceOp.MIN: dist.ReduceOp.MIN,
    ReduceOp.MAX: dist.ReduceOp.MAX,
}


def register_collective_backend(timeout_s: float = 1800.0) -> None:
    """Makes "tweed" a backend of `ray.util.collective`. Ray wants it called in the driver and in every actor.

    May be called again; the last `timeout_s` counts for groups that are made afterwards.

    Args:
      timeout_s: how long members of a group wait for each other, and an operation for its end, at most.

    Example, in the method of an actor:

        tweed.ray.register_collective_backend()
        collective.init_collective_group(world_size=4, rank=rank, backend="tweed", group_name="g")
        collective.allreduce(array, group_name="g")
    """
    TweedGroup.timeout_s = timeout_s
    if not hasattr(Backend, "TWEED"):
        _register("TWEED", TweedGroup)


class TweedGroup(BaseGroup):
    """One group, as `ray.util.collective` makes and calls it.

    Arrays and tensors are changed in place; those that receive must be writable, all must be contiguous. What
    others contribute may be read-only, as arrays from `ray.get` are.

    Raises:
      UsageError: ranks with different secrets, or an array that cannot be used.
      DeadlineExceeded, PeerLost: a member is late or gone; named.
    """

    timeout_s: ClassVar[float] = 1800.0
    #: Stores of groups that could not be made, by name: the other ranks may have yet to read there why.
    _failed: ClassVar[dict[str, Any]] = {}

    def __init__(self, world_size: int, rank: int, group_name: str) -> None:
        super().__init__(world_size, rank, group_name)
        join_network()
        os.environ.setdefault("TWEED_SECRET", job.secret())
        place = _DistributedBackendOptions()
        self._store: Any = PrefixStore("group", _meet(world_size, rank, group_name, self.timeout_s))
        place.store = self._store
        place.group_rank, place.group_size, place.group_id = rank, world_size, GroupName(group_name)
        place.timeout = timedelta(seconds=self.timeout_s)
        place.global_ranks_in_group = []  # of no other group
        try:
            self._engine: Any = dist.Backend._plugins["TWEED"].creator_fn(place, None)
        except BaseException:
            self._failed[group_name] = self._store
            raise
        self._failed.pop(group_name, None)

    @classmethod
    def backend(cls) -> str:
        """The backend's name, for Ray."""
        return "TWEED"

    @classmethod
    def check_backend_availability(cls) -> bool:
        """Whether it can be used: always, where it could be imported."""
        return True

    def destroy_group(self) -> None:
        """Lets go of the engine's group and of the store."""
        if self._rank == 0:
            job.remove(_place(self._group_name))
        self._engine = self._store = None

    def allreduce(self, tensor: Sequence[Any], allreduce_options: Any = None) -> None:
        """Every rank gets the sum, or whatever the operator makes."""
        options = dist.AllreduceOptions()
        options.reduceOp = _operator(allreduce_options)
        self._engine.allreduce([_written(tensor)], options).wait()

    def reduce(self, tensor: Sequence[Any], reduce_options: Any = None) -> None:
        """The root gets the sum; others' arrays stay as they are."""
        options = dist.ReduceOptions()
        options.reduceOp, options.rootRank = _operator(reduce_options), _root(reduce_options)
        ours = (_written if self._rank == options.rootRank else _read)(tensor)
        self._engine.reduce([ours], options).wait()

    def broadcast(self, tensor: Sequence[Any], broadcast_options: Any = None) -> None:
        """Every rank gets what the root has."""
        options = dist.BroadcastOptions()
        options.rootRank = _root(broadcast_options)
        ours = (_read if self._rank == options.rootRank else _written)(tensor)
        self._engine.broadcast([ours], options).wait()

    def allgather(self, tensor_list: Any, tensor: Sequence[Any], allgather_options: Any = None) -> None:
        """`tensor_list[0][r]` gets rank `r`'s `tensor`."""
        outputs = [_written([one]) for one in tensor_list[0]]
        self._engine.allgather([outputs], [_read(tensor)], AllgatherOptions()).wait()

    def reducescatter(
        self, tensor: Sequence[Any], tensor_list: Any, reducescatter_options: Any = None
    ) -> None:
        """Rank `r`'s `tensor` gets the sum of all `tensor_list[0][r]`."""
        options = dist.ReduceScatterOptions()
        options.reduceOp = _operator(reducescatter_options)
        inputs = [_read([one]) for one in tensor_list[0]]
        self._engine.reduce_scatter([_written(tensor)], [inputs], options).wait()

    def send(self, tensor: Sequence[Any], send_options: Any) -> None:
        """Sends to one rank."""
        self._engine.send([_read(tensor)], send_options.dst_rank, 0).wait()

    def recv(self, tensor: Sequence[Any], recv_options: Any) -> None:
        """Receives from one rank."""
        self._engine.recv([_written(tensor)], recv_options.src_rank, 0).wait()

    def barrier(self, barrier_options: Any = None) -> None:
        """Returns when all ranks have come."""
        self._engine.barrier(dist.BarrierOptions()).wait()


def _place(name: str) -> str:
    """Where rank 0 of a group leaves its address."""
    return f"groups/{name}"


def _meet(size: int, rank: int, name: str, timeout_s: float) -> Any:
    """The store of a group: opened by rank 0, found by the others.

    Raises: DeadlineExceeded if there is none in time.
    """
    if rank == 0:
        host = os.environ["TWEED_HOST"]
        kept = open_store(host, timeout_s=timeout_s)
        job.leave(_place(name), join_place(host, kept.port))
        return kept
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        # Rank 0 of a group that was lost may have left an address, where nobody answers any more.
        with contextlib.suppress(PeerLost, ValueError):
            host, port = split_place((job.find(_place(name)) or b"").decode())
            return reach_store(host, port, _CALL_S, timeout_s)
        time.sleep(_LOOK_S)
    raise DeadlineExceeded(
        f"group {name!r}: after {timeout_s:.0f} s, rank 0 has not come to rank {rank}, of {size}: was its "
        "actor started, and has it made the group with the same name?"
    )


def _operator(options: Any) -> Any:
    return _OPERATORS[ReduceOp.SUM if options is None else options.reduceOp]


def _root(options: Any) -> int:
    return 0 if options is None else int(options.root_rank)


def _written(tensors: Sequence[Any]) -> Tensor:
    """The one tensor or array of a call, which its result goes into."""
    (given,) = tensors
    if isinstance(given, np.ndarray) and not given.flags.writeable:
        raise UsageError(
            "the result cannot be written into a read-only array, as ray.get gives them: copy it first"
        )
    return _checked(torch.from_numpy(given) if isinstance(given, np.ndarray) else given)


def _read(tensors: Sequence[Any]) -> Tensor:
    """The one tensor or array of a call, which stays as it is."""
    (given,) = tensors
    if not isinstance(given, np.ndarray):
        return _checked(given)
    # torch knows no read-only memory, and warns of it.
    return torch.from_numpy(given if given.flags.writeable else given.copy())


def _checked(tensor: Any) -> Tensor:
    if not isinstance(tensor, Tensor) or tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise UsageError(
            "the backend 'tweed' takes contiguous NumPy arrays and CPU tensors, not "
            f"{type(tensor).__name__} on {getattr(tensor, 'device', 'another device')}"
        )
    return tensor
