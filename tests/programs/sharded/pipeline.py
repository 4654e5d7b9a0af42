"""Pipelining: two stages, the schedule 1F1B with four microbatches."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from tests.programs.nets import mlp, pipelined


def program(rank: int, size: int) -> Callable[[], Tensor | None]:
    layers = mlp()
    stage = layers[:4] if rank == 0 else layers[4:]
    pipe = PipelineStage(stage, rank, size, torch.device("cpu"))
    schedule = Schedule1F1B(pipe, n_microbatches=4, loss_fn=F.cross_entropy)
    return pipelined(schedule, stage, rank, size)
