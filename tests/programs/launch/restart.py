"""`torchrun --max-restarts`: a rank dies, and all go on from the checkpoint."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tests.programs.launched import begin, end, first_life, folder
from tests.programs.nets import mlp, sgd, training

AGENTS = 1
OPTIONS = ("--max-restarts", "2")
WHY = "in the second life Gloo's ranks wait for each other without end, in most runs (gdb: connectFullMesh)"


def main() -> None:
    rank = begin()
    model = DistributedDataParallel(mlp())
    optimizer = sgd(model)
    kept = folder() / "checkpoint"
    if kept.exists():
        weights, moments = torch.load(kept)
        model.load_state_dict(weights)
        optimizer.load_state_dict(moments)
    step = training(model, optimizer, rank)
    step()
    if first_life():
        if rank == 0:
            torch.save((model.state_dict(), optimizer.state_dict()), kept)
        dist.barrier()
        if rank == 1:
            (folder() / "failed").touch()
            os._exit(3)
    end(step().item() for _ in range(5))


if __name__ == "__main__":
    main()
