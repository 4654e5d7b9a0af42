"""torchft's members on Gloo, for `member_runs.lateness`: the same strikes, of the same gradient.

torchft is none of tweed's dependencies: `pip install torchft-nightly`, into an environment of its own if you
like, as it brings OpenTelemetry along. The last rank holds its lighthouse, and nothing befalls it.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import torch

from tweed.exchange.store import open_store
from tweed.files import write_atomic
from tweed.systems.elastic.contenders import Timeouts
from tweed.systems.elastic.member_runs import Job
from tweed.systems.elastic.watched import Written
from tweed.testbed.restarts import restarted


def is_there() -> bool:
    """Whether torchft can be imported."""
    return importlib.util.find_spec("torchft") is not None


def program(timeouts: Timeouts) -> Callable[..., Any]:
    """What ranks run: one more than there are members."""
    return partial(_member, timeouts=timeouts)


def _member(rank: int, size: int, job: Job, timeouts: Timeouts) -> Any:
    if rank < job.founders:
        return restarted(_life, job.folder, rank, job, timeouts)
    from torchft.coordination import LighthouseServer

    host = os.environ["TWEED_HOST"]
    lighthouse = LighthouseServer(
        bind=f"{host}:0",
        min_replicas=1,
        join_timeout_ms=round(timeouts.join * 1000),
        heartbeat_timeout_ms=round(timeouts.heartbeat * 1000),
    )
    port = lighthouse.address().rpartition(":")[2]
    write_atomic(job.folder / "lighthouse", f"http://{host}:{port}")
    while not (job.folder / "last").exists():
        time.sleep(0.1)
    time.sleep(timeouts.group)  # the others end
    lighthouse.shutdown()
    return None


def _life(life: int, rank: int, job: Job, timeouts: Timeouts) -> None:
    """Trains until it is over, and writes each step that is committed down."""
    from torchft import Manager, ProcessGroupGloo

    place, host = job.folder / "lighthouse", os.environ["TWEED_HOST"]
    socket.gethostname = lambda: host  # by which members fetch each other's state; a testbed has no names
    while not place.exists():
        time.sleep(0.01)
    params, gradient = torch.zeros(job.numel), torch.ones(job.numel)
    store = open_store(host)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=timeouts.group)),
        load_state_dict=lambda state: params.copy_(state["params"]),
        state_dict=lambda: {"params": params},
        min_replica_size=1,
        timeout=timedelta(seconds=timeouts.manager),
        rank=0,
        world_size=1,
        store_addr=host,
        store_port=store.port,
        lighthouse_addr=place.read_text(),
        replica_id=f"member-{rank}",
        hostname=host,
    )
    with Written(job.folder, rank, life) as written:
        begin = time.monotonic()
        while not written.over(manager.current_step()):
            manager.start_quorum()
            time.sleep(job.compute_s)
            summed = gradient.clone()
            manager.allreduce(summed).wait()
            if manager.should_commit():
                params.sub_(summed, alpha=0.01)
                written.step(manager.current_step(), begin, manager.num_participants())
                begin = time.monotonic()
    manager.shutdown(wait=False)
