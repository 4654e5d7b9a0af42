"""`find_unused_parameters`: each rank uses another head of the model in turn."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tests.programs.nets import mlp, sgd, training


class Heads(nn.Module):
    def __init__(self, rank: int) -> None:
        super().__init__()
        self.body = mlp()
        self.heads = nn.ModuleList(nn.Linear(10, 10) for _ in range(3))
        self.turn = rank

    def forward(self, x: Tensor) -> Tensor:
        self.turn = (self.turn + 1) % 2
        return self.heads[self.turn](self.body(x))


def program(rank: int, size: int) -> Callable[[], Tensor]:
    model = DistributedDataParallel(Heads(rank), find_unused_parameters=True)
    return training(model, sgd(model), rank)
