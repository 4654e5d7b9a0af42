"""DDP under torchrun."""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

from tests.programs.launched import begin, end
from tests.programs.nets import mlp, sgd, training

AGENTS = 1


def main() -> None:
    rank = begin()
    model = DistributedDataParallel(mlp())
    step = training(model, sgd(model), rank)
    end(step().item() for _ in range(20))


if __name__ == "__main__":
    main()
