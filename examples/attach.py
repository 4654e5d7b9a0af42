"""A plain loop under a strategy: four steps alone, then the mean of all ranks' models.

torchrun --nproc-per-node 2 examples/attach.py
"""

from __future__ import annotations

import torch
import torch.distributed as dist

import tweed

dist.init_process_group("tweed")
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
with tweed.attach(model, optimizer, "local_steps:4") as run:
    for _ in range(50):
        x = torch.randn(32, 8)
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(f"rank {dist.get_rank()}: loss {loss:.4f}, {run.stats.exchanges} exchanges in {run.stats.steps} steps")
dist.destroy_process_group()
