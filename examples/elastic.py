"""Members that come and go: each step counts for all that are there, or for none.

torchrun --nproc-per-node 2 examples/elastic.py

A rank that is killed ends the others here, as one agent ends all its workers. With an agent for each, as on
machines of their own, nobody else's workers are touched, and further agents join while the others train:

torchrun --rdzv-backend tweed --rdzv-endpoint HOST:29400 --rdzv-id a-run --nnodes 1:4 examples/elastic.py
"""

from __future__ import annotations

import signal

import torch
from torch.utils.data import TensorDataset

import tweed
from tweed.elastic import Elastic

inputs = torch.randn(512, 8, generator=torch.Generator().manual_seed(0))
dataset = TensorDataset(inputs, inputs.sum(1, keepdim=True))
model = torch.nn.Linear(8, 1)  # all begin with that of rank 0
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 20, 0.5)

run = tweed.attach(model, optimizer, elastic=Elastic(1, 8))
run.keep("schedule", schedule)
with run, run.leaving_on(signal.SIGTERM):  # in good order: the others lose no step
    for x, y in run.batches(dataset, steps=50, batch=64):
        (model(x) - y).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()

x, y = dataset.tensors
print(f"rank {run.rank}: loss {(model(x) - y).square().mean():.4f} after {run.steps_done} steps")
