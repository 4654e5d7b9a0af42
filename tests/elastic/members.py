"""How ranks get among the members, and how they end. Without pytest, as each rank imports it."""

from __future__ import annotations

import os
import signal

import torch.distributed as dist

from tweed.elastic import Control, Elastic, join, start


def among(store: dist.Store, rank: int, founders: int, elastic: Elastic, of: int = 0) -> Control:
    """One of those that begin, or one that joins them by calling rank `of`."""
    if rank >= founders:
        return join(store.get(f"address {of}").decode(), elastic)
    control = start(store, rank, founders, elastic)
    store.set(f"address {rank}", control.address)
    return control


def kill_me() -> None:
    """As the kernel does that has no memory left."""
    os.kill(os.getpid(), signal.SIGKILL)


def stop_me() -> None:
    """As a debugger does, or a host that sleeps: links stay, and nothing comes over them."""
    os.kill(os.getpid(), signal.SIGSTOP)
