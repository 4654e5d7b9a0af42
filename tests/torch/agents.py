"""torchrun's agents, on this host."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

TIMEOUT_S = 120.0
ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        return int(listener.getsockname()[1])


def agents(shape: tuple[int, int], options: Sequence[str], script: Sequence[str]) -> list[tuple[int, str]]:
    """Exit code and output of so many agents with so many workers each, that run `script`.

    Several meet by c10d's rendezvous, one by that of fixed ranks.
    """
    number, workers = shape
    port = free_port()
    static = ("--master-addr", "127.0.0.1", "--rdzv-backend", "static", "--master-port", str(port))
    dynamic = ("--rdzv-backend", "c10d", "--rdzv-id", "a-run", "--local-addr", "127.0.0.1")
    place = static if number == 1 else (*dynamic, "--rdzv-endpoint", f"127.0.0.1:{port}")
    command = (sys.executable, "-m", "torch.distributed.run", *place, *options, "--monitor-interval", "0.1")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TWEED_")}
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))  # scripts import `tests`
    environment |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": paths}
    running = [
        subprocess.Popen(
            [
                *command,
                "--nnodes",
                str(number),
                "--nproc-per-node",
                str(workers),
                "--node-rank",
                str(node),
                *script,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        for node in range(number)
    ]
    try:
        outputs = [agent.communicate(timeout=TIMEOUT_S)[0] for agent in running]
        return [(agent.returncode, output) for agent, output in zip(running, outputs, strict=True)]
    finally:
        for agent in running:
            agent.terminate()  # it ends its workers, which a kill would leave behind
            agent.wait()
