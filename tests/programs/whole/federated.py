"""Rounds in the manner of FedAvg: local steps, then a mean of models weighted by samples."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from tests.programs.nets import mlp, sgd, training


def program(rank: int, size: int) -> Callable[[], Tensor]:
    model = mlp()
    train = training(model, sgd(model), rank)

    def step() -> Tensor:
        for _ in range(3):
            loss = train()
        weight = torch.tensor(float(rank + 1))
        total = weight.clone()
        dist.all_reduce(total)
        flat = torch.nn.utils.parameters_to_vector(model.parameters()).detach() * (weight / total)
        dist.all_reduce(flat)
        torch.nn.utils.vector_to_parameters(flat, model.parameters())
        return loss

    return step
