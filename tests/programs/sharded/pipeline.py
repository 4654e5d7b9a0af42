"""Pipelining: two stages, the schedule 1F1B with four microbatches."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from tests.programs.nets import batches, mlp, sgd


def program(rank: int, size: int) -> Callable[[], Tensor | None]:
    layers = mlp()
    stage = layers[:4] if rank == 0 else layers[4:]
    pipe = PipelineStage(stage, rank, size, torch.device("cpu"))
    schedule = Schedule1F1B(pipe, n_microbatches=4, loss_fn=F.cross_entropy)
    optimizer, batch = sgd(stage), batches(0)

    def step() -> Tensor | None:
        x, y = batch()
        optimizer.zero_grad()
        losses: list[Tensor] = []
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=y, losses=losses)
        optimizer.step()
        return torch.stack(losses).mean().detach() if losses else None

    return step
