"""`static_graph` with activation checkpointing."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from tests.programs.nets import mlp, sgd, training


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = mlp()

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x


def program(rank: int, size: int) -> Callable[[], Tensor]:
    model = DistributedDataParallel(Checkpointed(), static_graph=True, gradient_as_bucket_view=True)
    return training(model, sgd(model), rank)
