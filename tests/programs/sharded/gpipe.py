"""Pipelining: four stages, the schedule GPipe with eight microbatches."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

from tests.programs.nets import mlp, pipelined

RANKS = 4


def program(rank: int, size: int) -> Callable[[], Tensor | None]:
    stage = mlp()[2 * rank : 2 * rank + 2]
    pipe = PipelineStage(stage, rank, size, torch.device("cpu"))
    schedule = ScheduleGPipe(pipe, n_microbatches=8, loss_fn=F.cross_entropy)
    return pipelined(schedule, stage, rank, size)
