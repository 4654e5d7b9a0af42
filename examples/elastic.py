"""Members that come and go: each step counts for all that are there, or for none.

torchrun --nproc-per-node 2 examples/elastic.py

A rank that is killed would end the others here, as torchrun ends them all; where something else starts the
processes they go on without it. Another process joins with `tweed.elastic.join(address, Elastic(1, 8))`.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

import torch
import torch.distributed as dist

from tweed.data.sampler import GlobalOrder, Sampler
from tweed.elastic import Elastic, ElasticRun, start

store, rank, size = next(dist.rendezvous("env://"))
control = start(store, rank, size, Elastic(1, 8))
inputs = torch.randn(512, 8, generator=torch.Generator().manual_seed(0))
targets = inputs.sum(1, keepdim=True)
torch.manual_seed(0)  # members begin with one model
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
keep = {"model": model, "optimizer": optimizer}
run = ElasticRun(control, Sampler(GlobalOrder(len(inputs), seed=0), batch=64), keep)


def gradient(samples: Sequence[int]) -> torch.Tensor:
    """The sum of the gradients of these samples, flat."""
    optimizer.zero_grad(set_to_none=False)
    (model(inputs[samples]) - targets[samples]).square().sum().backward()
    return torch.nn.utils.parameters_to_vector(value.grad for value in model.parameters())


with run.leaving_on(signal.SIGTERM):  # in good order: the others lose no step
    while run.counted < 50:
        mean = run.step(gradient)
        parts = mean.split([value.numel() for value in model.parameters()])
        for value, part in zip(model.parameters(), parts, strict=True):
            value.grad = part.view_as(value)
        optimizer.step()
run.finish()
loss = (model(inputs) - targets).square().mean()
print(f"rank {rank}: loss {loss:.4f}, others join at {control.address}")
control.close()
