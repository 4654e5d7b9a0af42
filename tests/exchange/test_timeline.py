"""A wait that somebody records names the rank that was last heard of."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from tweed.exchange.communicator import Communicator, Stats
from tweed.metrics.timeline import record
from tweed.strategy import Strategy
from tweed.testbed import run_ranks


class Signalled:
    """An operation that lets rank 1 begin once somebody waits for it."""

    def __init__(self, work: dist.Work, store: dist.Store) -> None:
        self._work, self._store = work, store

    def wait(self) -> None:
        self._store.set("waits", "")
        self._work.wait()


def held_up(rank: int, size: int) -> list[tuple[str, object]]:
    store = dist.distributed_c10d._get_default_store()
    comm = Communicator(None, Strategy(), Stats())
    if rank == 1:
        store.wait(["waits"])
    recording = record()
    work = comm.start_mean(torch.ones(4))
    comm.wait(Signalled(work, store) if rank == 0 else work)  # type: ignore[arg-type]
    with comm.encoding():
        pass
    return sorted((span.what, span.last) for span in recording.take(time.monotonic()))


def test_who_waits_names_who_was_late() -> None:
    assert run_ranks(held_up, 2, backend="tweed")[0] == [
        ("encode", None),
        ("under way", None),
        ("wait", (1, "shm")),
    ]


def test_another_backend_names_nobody() -> None:
    assert run_ranks(held_up, 2, backend="gloo")[0] == [("encode", None), ("under way", None), ("wait", None)]
