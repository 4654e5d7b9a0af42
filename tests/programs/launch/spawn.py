"""`torch.multiprocessing.spawn`, and a meeting by a file."""

from __future__ import annotations

import sys
from pathlib import Path

import torch.distributed as dist
import torch.multiprocessing
from torch.nn.parallel import DistributedDataParallel

from tests.programs.nets import mlp, sgd, training

AGENTS = 1
RANKS = 1


def work(rank: int, backend: str, folder: str) -> None:
    dist.init_process_group(backend, init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    model = DistributedDataParallel(mlp())
    step = training(model, sgd(model), rank)
    losses = [step().item() for _ in range(5)]
    (Path(folder) / f"rank {rank}").write_text(" ".join(map(str, losses)))
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(work, tuple(sys.argv[1:3]), nprocs=2)
