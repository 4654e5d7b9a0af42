"""Takes part in a job as one worker that torchrun or Ray Train has started. Rank 0 writes and shows."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from tweed import metrics
from tweed.errors import UsageError
from tweed.exchange.store import reading, value
from tweed.forkserver.server import environment
from tweed.train.display import Display, Silent
from tweed.train.folder import RunFolder, latest, plan_of
from tweed.train.launch import Show, backend_of
from tweed.train.loop import Worker
from tweed.train.settings import Settings

#: Rank 0's part: opens the run. Called there only.
Begin = Callable[[], tuple[Settings, RunFolder]]
#: Rank 0's part: gives what shows figures.
View = Callable[[Settings], Display]


def take_part(begin: Begin, view: View) -> tuple[Settings, RunFolder, int]:
    """Trains all sides as one of the launcher's workers.

    Rank 0 calls `begin` and `view`, and its settings are everybody's.

    Returns: settings, the run's folder, and this worker's rank.
    """
    torch.set_num_threads(1)
    store, rank, size = _meet()
    if rank == 0:
        store.set("job", _to_json(*begin()))
    with reading(store, "the job of rank 0"):
        settings, folder = _from_json(value(store, "job"))
    metrics.call(folder.path.name)
    with view(settings) if rank == 0 else Silent() as shown:
        for label in settings.sides:
            join = {"store": PrefixStore(label, store), "rank": rank, "world_size": size}
            with environment(plan_of(folder.checkpoints(label))):
                dist.init_process_group(backend_of(label, settings), **join)
            _train(settings, label, folder, shown.show)
            dist.destroy_process_group()
    return settings, folder, rank


def _to_json(settings: Settings, folder: RunFolder) -> bytes:
    """A job for torchrun's store. Strangers can write there, so it is data, never code."""
    return json.dumps({"settings": settings.to_json(), "folder": str(folder.path)}).encode()


def _from_json(text: bytes) -> tuple[Settings, RunFolder]:
    job = json.loads(text)
    return Settings.from_json(job["settings"]), RunFolder(Path(job["folder"]))


def _meet() -> Any:
    """Gives the store of the launcher's workers, this one's rank, and their number."""
    try:
        return next(rendezvous("env://"))
    except dist.DistError as error:
        host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
        raise UsageError(
            f"the workers cannot meet at {host}:{port}: {str(error).splitlines()[0]}\n"
            f"If the port is in use, `ss -ltnp 'sport = :{port}'` shows the process: stop it, or give "
            "torchrun another --master-port. If the host cannot be reached, try `tweed doctor`"
        ) from error


def _train(settings: Settings, label: str, folder: RunFolder, show: Show) -> None:
    def report(figures: dict[str, Any]) -> None:
        folder.append(figures)
        show(figures)

    if dist.get_rank() == 0:
        folder.cut(label, latest(folder.checkpoints(label)))
    Worker(settings, label, folder.checkpoints(label), report).run()
