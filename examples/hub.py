"""A hub and its workers: rank 0 has the model and no data, the others hand over gradients when they have one.

torchrun --nproc-per-node 3 examples/hub.py
"""

from __future__ import annotations

import torch
import torch.distributed as dist

import tweed
from tweed.collective import Hub

dist.init_process_group("tweed")
torch.manual_seed(dist.get_rank())
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
with tweed.attach(model, optimizer, tweed.Strategy(collective=Hub(0))) as run:
    if run.serves:
        run.serve()
    else:
        for _ in range(50):
            x = torch.randn(32, 8)
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"rank {dist.get_rank()}: loss {loss:.4f}")
if run.serves:
    error = (model.weight - 1).abs().max()
    print(f"rank 0: largest error of a weight {error:.4f}")
dist.destroy_process_group()
