"""Torch's coalescing blocks, such as that of `batch_isend_irecv`, end also where an exception leaves them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d


@functools.cache
def end_interrupted_blocks() -> None:
    """From now on, in this process. Torch keeps a block open that an exception has left: it puts the group's
    next collectives into the block's list, and never makes them, without an error.

    A torch whose manager is made otherwise is left as it is.
    """
    manager: Any = distributed_c10d._coalescing_manager
    block = getattr(manager, "__wrapped__", None)
    cells: Sequence[Any] = getattr(manager, "__closure__", None) or ()
    if block is None or [cell.cell_contents for cell in cells] != [block]:
        return

    @functools.wraps(block)
    def ended(
        group: dist.ProcessGroup | None = None, device: torch.device | None = None, async_ops: bool = False
    ) -> Iterator[Any]:
        group = group or distributed_c10d._get_default_group()
        try:
            yield from block(group, device, async_ops)
        except BaseException:
            distributed_c10d._world.pg_coalesce_state.pop(group, None)
            if device is not None:
                group._end_coalescing(device)
            raise

    # Other modules have the manager by its own name: it stays, and what it calls is another.
    cells[0].cell_contents = ended
