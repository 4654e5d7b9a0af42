"""Ranks that `mpirun` starts, so that OpenMPI can take its turns in the same processes as the others.

launcher ── mpirun ──> python -m bench.mpi FOLDER, once per rank; job and results are files in FOLDER
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from bench.run import TIMEOUT_S, Row
from tweed.forkserver.server import ONE_THREAD

_ROOT = Path(__file__).parents[1]
#: What OpenMPI chooses within a host by itself. Said, so that it cannot quietly take something else.
_TRANSPORT = {"pml": "ob1", "btl": "self,sm", "smsc": "cma"}
#: Ends a program with the one that started it, however that ends: mpirun with us, ranks with mpirun.
_TIED = ("setpriv", "--pdeathsig", "KILL")


def launch(fn: Callable[..., Any], ranks: int, *args: object) -> list[Any]:
    """Runs `fn(rank, ranks, *args)` in a default group of tweed and in MPI's world; results by rank.

    Raises: RuntimeError if a rank fails, with what all of them have printed.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "job").write_bytes(pickle.dumps((fn, args)))
        _run(_command(ranks, folder), folder)
        return [pickle.loads((folder / str(rank)).read_bytes()) for rank in range(ranks)]


def settings(ranks: int) -> dict[str, str]:
    """OpenMPI's parameters. Ranks that wait give way where there are more of them than cores."""
    crowded = ranks > len(os.sched_getaffinity(0))
    return _TRANSPORT | {"mpi_yield_when_idle": str(int(crowded))}


def about(ranks: int) -> Row:
    """What OpenMPI was told, for the table."""
    said = subprocess.run([_mpirun(), "--version"], check=True, capture_output=True, text=True).stdout
    return {"part": "openmpi", "ranks": ranks, "version": said.split()[3], **settings(ranks)}


def all_reduce(tensor: Tensor) -> Callable[[], object]:
    """A call that sums `tensor` over MPI's world, in place."""
    from mpi4py import MPI  # starts MPI

    array, world = tensor.numpy(), MPI.COMM_WORLD
    return lambda: world.Allreduce(MPI.IN_PLACE, array)


def _mpirun() -> Path:
    return Path(sys.executable).parent / "mpirun"


def _command(ranks: int, folder: Path) -> list[str]:
    parameters = [word for name, value in settings(ranks).items() for word in ("--mca", name, value)]
    placing = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    start = [*_TIED, str(_mpirun()), *placing, *parameters, "-n", str(ranks)]
    return [*start, *_TIED, sys.executable, "-m", "bench.mpi", str(folder)]


def _run(command: list[str], folder: Path) -> None:
    environment = os.environ | ONE_THREAD | {"GLOO_SOCKET_IFNAME": "lo", "TMPDIR": str(folder)}
    with subprocess.Popen(
        command,
        cwd=_ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as mpirun:
        try:
            said, _ = mpirun.communicate(timeout=TIMEOUT_S)
        finally:
            mpirun.terminate()
        if mpirun.returncode != 0:
            raise RuntimeError(f"mpirun left with {mpirun.returncode}; it and its ranks said:\n{said}")


def _rank(folder: Path) -> None:
    """One rank's whole life."""
    from mpi4py import MPI

    rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), size)
    dist.init_process_group("tweed", store=store, rank=rank, world_size=size)
    fn, args = pickle.loads((folder / "job").read_bytes())
    (folder / str(rank)).write_bytes(pickle.dumps(fn(rank, size, *args)))
    dist.destroy_process_group()


if __name__ == "__main__":
    _rank(Path(sys.argv[1]))
