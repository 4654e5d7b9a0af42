"""HierarchicalModelAverager: pairs every two steps, all four ranks every four."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from torch import Tensor
from torch.distributed.algorithms.model_averaging.hierarchical_model_averager import HierarchicalModelAverager

from tests.programs.nets import mlp, sgd, training

RANKS = 4


def program(rank: int, size: int) -> Callable[[], Tensor]:
    model = mlp()
    averager = HierarchicalModelAverager(period_group_size_dict=OrderedDict([(2, 2), (4, 4)]), warmup_steps=0)
    local = training(model, sgd(model), rank)

    def step() -> Tensor:
        loss = local()
        averager.average_parameters(model.parameters())
        return loss

    return step
