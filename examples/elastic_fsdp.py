"""Members that are several processes each: FSDP2 within, and members come and go as a whole.

torchrun --nproc-per-node 2 examples/elastic_fsdp.py

That is one member alone. With several agents others join it, are lost and return:

torchrun --rdzv-backend tweed --rdzv-endpoint HOST:29400 --rdzv-id a-run --nnodes 1:4 --nproc-per-node 2 \\
    --max-restarts 3 examples/elastic_fsdp.py

The workers of an agent have torch's default group among themselves, and a shard each of every parameter. If
one of them dies, its agent starts all of its workers anew, and they join the other agents', which go on.
"""

from __future__ import annotations

import signal

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.utils.data import TensorDataset

import tweed
from tweed.elastic import Elastic

dist.init_process_group("tweed")  # of this agent's workers
inputs = torch.randn(512, 8, generator=torch.Generator().manual_seed(0))
dataset = TensorDataset(inputs, torch.tanh(inputs.sum(1, keepdim=True)))
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)  # of shards, so after fully_shard()

run = tweed.attach(model, optimizer, elastic=Elastic(1, 4))
with run, run.leaving_on(signal.SIGTERM):
    for x, y in run.batches(dataset, steps=200, batch=64):
        (model(x) - y).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    x, y = dataset.tensors
    loss = (model(x) - y).square().mean()  # by all processes of the sharded member
    print(f"member {run.rank} of {len(run.members)}: loss {loss:.4f} after {run.steps_done} steps")
dist.destroy_process_group()
