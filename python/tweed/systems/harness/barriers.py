"""How the ranks of a benchmark wait for each other, and agree on who was slowest."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

#: Seconds until all ranks have read what the last has written; a file store looks every 10 ms.
_READ_BY_ALL_S = 0.03


class GroupBarrier:
    """Over the default group."""

    def wait(self) -> None:
        """Returns when all ranks have called it."""
        dist.barrier()

    def slowest(self, seconds: float) -> float:
        """The most that any rank has given; all ranks must call it."""
        agreed = torch.tensor(seconds, dtype=torch.float64)
        dist.all_reduce(agreed, dist.ReduceOp.MAX)
        return float(agreed)


class FileBarrier(GroupBarrier):
    """Through a file, for ranks of one host.

    Over a network that loses packets, ranks leave a barrier up to seconds apart. Who begins first then waits
    for the last, and a short step is measured as a long one.

    Args:
      path: the same at all ranks, of a file that is not there yet.
    """

    def __init__(self, path: Path, rank: int, size: int) -> None:
        from torch._C._distributed_c10d import FileStore

        self._store = FileStore(str(path), size)
        self._store.set_timeout(timedelta(minutes=30))
        self._rank, self._size, self._turn = rank, size, 0

    def wait(self) -> None:
        """All ranks return at one moment: they have one clock."""
        begin = self.slowest(time.monotonic()) + _READ_BY_ALL_S
        time.sleep(max(0.0, begin - time.monotonic()))

    def slowest(self, seconds: float) -> float:
        """The most that any rank has given; all ranks must call it."""
        self._turn += 1
        self._store.set(f"{self._turn}/{self._rank}", repr(seconds))
        return max(float(self._store.get(f"{self._turn}/{rank}")) for rank in range(self._size))
