"""Under torchrun: workers that are started again begin anew, in whatever store they get."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

STATIC = ("--master-addr", "127.0.0.1", "--rdzv-backend", "static")
DYNAMIC = ("--rdzv-backend", "c10d", "--rdzv-id", "a-run", "--local-addr", "127.0.0.1")


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        return int(listener.getsockname()[1])


def agents(number: int, how: tuple[str, ...], folder: Path) -> list[str]:
    """Output of so many agents with two workers between them."""
    port = free_port()
    place = ("--master-port", str(port)) if how is STATIC else ("--rdzv-endpoint", f"127.0.0.1:{port}")
    command = (sys.executable, "-m", "torch.distributed.run", *how, *place, "--max-restarts", "1")
    shape = ("--nnodes", str(number), "--nproc-per-node", str(2 // number), "--monitor-interval", "0.1")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TWEED_")}
    running = [
        subprocess.Popen(
            [*command, *shape, "--node-rank", str(node), __file__, str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment | {"OMP_NUM_THREADS": "1"},
        )
        for node in range(number)
    ]
    try:
        return [agent.communicate(timeout=120)[0] for agent in running]
    finally:
        for agent in running:
            agent.kill()
            agent.wait()


# Of two agents, only the one whose worker has failed counts a restart.
@pytest.mark.parametrize(("number", "how"), [(1, STATIC), (2, DYNAMIC)], ids=["one-agent", "two-agents"])
def test_workers_that_are_restarted_meet_again(tmp_path: Path, number: int, how: tuple[str, ...]) -> None:
    outputs = agents(number, how, tmp_path)
    found = {file.name: file.read_text().splitlines() for file in tmp_path.glob("rank *")}
    assert found == {f"rank {rank}": ["[2.0, 2.0, 2.0]"] * 2 for rank in range(2)}, outputs


def work(rank: int, folder: Path) -> None:
    """One of the workers: takes a sum, notes it in its file, and fails in its first life if it is rank 1."""
    dist.init_process_group("tweed", timeout=timedelta(seconds=60))
    total = torch.ones(3)
    dist.all_reduce(total)
    with (folder / f"rank {rank}").open("a") as results:
        print(total.tolist(), file=results)
    if rank == 1 and not (folder / "failed").exists():
        (folder / "failed").touch()
        os._exit(3)
    dist.barrier()


if __name__ == "__main__":
    work(int(os.environ["RANK"]), Path(sys.argv[1]))
