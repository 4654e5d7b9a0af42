"""A restart under two agents of torchrun."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

from tests.programs.launched import begin, end, first_life, folder

AGENTS = 2
OPTIONS = ("--max-restarts", "2")
WHY = "in the second life Gloo's ranks wait for each other without end, in most runs (gdb: connectFullMesh)"


def main() -> None:
    rank = begin()
    total = torch.full((8,), rank + 1.0)
    dist.all_reduce(total)
    if rank == 1 and first_life():
        (folder() / "failed").touch()
        os._exit(3)
    dist.barrier()
    end(total.tolist())


if __name__ == "__main__":
    main()
