"""What the Python process group is called and knows of itself; its collectives are in `fallback.py`.

Without these names torch takes a Python subclass for a group without name, backend and devices, and device
meshes, FSDP2, DTensor and functional collectives fail.
"""
# ruff: noqa: D102  methods that torch calls; torch describes them

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from tweed.torch import engine
from tweed.torch.call import Call
from tweed.torch.flight import Flight, Work
from tweed.torch.node import empty

if TYPE_CHECKING:
    from tweed._core import Group

_UNSET = timedelta(milliseconds=-1)  # torch's kUnsetTimeout

# torch's stubs give each method overloads that an overriding method need not have.
_ProcessGroup: Any = dist.ProcessGroup


class NamedGroup(_ProcessGroup):  # type: ignore[misc]
    """A group of the engine that can start operations, without any."""

    def __init__(self, group: Group, given: Any) -> None:
        super().__init__(given.group_rank, given.group_size)
        from tweed import _core

        self._group = group
        self._engine = engine.table(_core.engine_table())
        self._rank, self._size = given.group_rank, given.group_size
        self._timeout: timedelta = given.timeout
        self._name, self._desc = given.group_id, ""
        self._sequence = 0
        self._together: list[Flight] | None = None  # those of the coalescing block that is open

    def submit(self, call: Call, timeout: timedelta = _UNSET) -> Flight:
        """Starts one operation; `timeout` unset means the group's."""
        chosen = self._timeout if timeout == _UNSET else timeout
        call.request.timeout_ms = round(chosen.total_seconds() * 1000)
        return Flight(self._engine, self._group.address(), call)

    def _launch(self, call: Call, opts: Any = None) -> Work:
        self._sequence += 1
        flight = self.submit(call, getattr(opts, "timeout", _UNSET))
        if self._together is not None:
            self._together.append(flight)
        return Work([flight], self._sequence)

    def _start_coalescing(self, device: torch.device) -> None:
        self._together = []

    def _end_coalescing(self, device: torch.device) -> dist.Work:
        flights, self._together = self._together or [], None
        return Work(flights, self._sequence)

    def _set_sequence_number_for_group(self) -> None:
        """Nothing to agree on: all start at 0."""

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        return device.type == "cpu"

    def allocate_tensor(self, size: int, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return empty(size, dtype=dtype, device=device)

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout

    def abort(self) -> None:
        self._engine.abort(self._group.address(), b"abort() was called on the process group")

    def rank(self) -> int:
        return int(self._rank)

    def size(self) -> int:
        return int(self._size)

    def getBackendName(self) -> str:
        return "tweed"

    def getGroupName(self) -> str:
        return str(self._name)

    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupDesc(self) -> str:
        return self._desc

    def setGroupDesc(self, desc: str) -> None:
        self._desc = desc

    def _get_backend(self, device: torch.device) -> NamedGroup:
        return self

    getRank = rank
    getSize = size
    group_name = property(getGroupName)
    group_desc = property(getGroupDesc)
    name = getBackendName
    _set_group_name = setGroupName
    _set_group_desc = setGroupDesc
    supports_coalescing = True
    supports_splitting = False
