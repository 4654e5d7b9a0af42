"""A trainer class with loader workers, AMP and snapshots, in the manner of minGPT-ddp."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from tests.programs.nets import WIDTH, mlp


@dataclass
class Snapshot:
    model: dict[str, Tensor]
    optimizer: dict[str, object]
    epoch: int


class Trainer:
    def __init__(self, data: TensorDataset, rank: int, size: int) -> None:
        self.model = DistributedDataParallel(mlp())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.scaler = torch.amp.GradScaler("cpu")
        self.sampler = DistributedSampler(data, size, rank)
        self.loader = DataLoader(
            data, 16, sampler=self.sampler, num_workers=1, multiprocessing_context="fork"
        )
        self.epoch = 0

    def run_epoch(self) -> Tensor:
        self.sampler.set_epoch(self.epoch)
        for x, y in self.loader:
            with torch.amp.autocast("cpu", torch.bfloat16):
                loss = F.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad(set_to_none=True)
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.epoch += 1
        return loss.detach()

    def snapshot(self) -> bytes:
        kept = io.BytesIO()
        torch.save(
            vars(Snapshot(self.model.module.state_dict(), self.optimizer.state_dict(), self.epoch)), kept
        )
        return kept.getvalue()

    def load(self, kept: bytes) -> None:
        found = Snapshot(**torch.load(io.BytesIO(kept)))
        self.model.module.load_state_dict(found.model)
        self.optimizer.load_state_dict(found.optimizer)
        self.epoch = found.epoch


def program(rank: int, size: int) -> Callable[[], Tensor]:
    draw = torch.Generator().manual_seed(0)
    data = TensorDataset(torch.randn(128, WIDTH, generator=draw), torch.randint(10, (128,), generator=draw))
    trainer = Trainer(data, rank, size)

    def step() -> Tensor:
        trainer.load(trainer.snapshot())
        return trainer.run_epoch()

    return step
