"""Messages between single ranks, and a wait for whichever comes first, or for a time."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Hashable
from contextlib import suppress

import torch.distributed as dist
from torch import Tensor

#: A wait without end asks again after so many seconds, so that an interrupt gets through.
_PATIENCE_S = 0.2


class PeerMessages:
    """This rank's messages to and from others of one process group.

    Args:
      group: of a backend whose works have futures, as "tweed".
      wait: waits for a work that is known to be done, or has to be; raises what the backend raises.
    """

    def __init__(self, group: dist.ProcessGroup | None, wait: Callable[[dist.Work], None]) -> None:
        self._group = group
        self._wait = wait
        self._sent: list[dist.Work] = []
        self._works: dict[Hashable, dist.Work] = {}
        self._came: queue.SimpleQueue[Hashable] = queue.SimpleQueue()

    def send(self, tensor: Tensor, rank: int) -> None:
        """Begins to send `tensor`, which must stay as it is until it has left. Lets go of those that have."""
        for done in [one for one in self._sent if one.is_completed()]:
            self._wait(done)
            self._sent.remove(done)
        work = dist.isend(tensor, group=self._group, group_dst=rank)
        assert work is not None  # this process is a member of the group
        self._sent.append(work)

    def expect(self, name: Hashable, tensor: Tensor, rank: int) -> None:
        """`tensor` is to be what comes next from `rank`; `next` returns `name` when it is there."""
        work = dist.irecv(tensor, group=self._group, group_src=rank)
        assert work is not None  # as above
        self._works[name] = work
        work.get_future().add_done_callback(lambda future: self._came.put(name))

    def next(self, until: float) -> Hashable | None:
        """The name of something that has come; None if `time.monotonic()` is past `until` and nothing has."""
        while True:
            try:
                left = until - time.monotonic()
                name = self._came.get(timeout=min(max(0.0, left), _PATIENCE_S))
            except queue.Empty:
                if time.monotonic() >= until:
                    return None
                continue
            self._wait(self._works.pop(name))
            return name

    def flush(self) -> None:
        """Waits until all that was sent has left this rank."""
        for work in self._sent:
            self._wait(work)
        self._sent = []

    def abort(self) -> None:
        """Ends the group's calls at all ranks, where its backend can."""
        group = self._group or dist.distributed_c10d._get_default_group()
        with suppress(RuntimeError):  # as of Gloo, which cannot
            group.abort()
