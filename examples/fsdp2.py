"""FSDP2 over tweed: parameters, gradients and optimizer state in shards, and a checkpoint of them.

torchrun --nproc-per-node 2 examples/fsdp2.py
"""

from __future__ import annotations

import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import fully_shard

dist.init_process_group("tweed")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())
for _ in range(50):
    x = torch.randn(32, 8)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
folder = [tempfile.mkdtemp()]
dist.broadcast_object_list(folder)
dcp.save({"model": model.state_dict()}, checkpoint_id=folder[0])
print(f"rank {dist.get_rank()}: loss {loss:.4f}, checkpoint in {folder[0]}")
dist.destroy_process_group()
