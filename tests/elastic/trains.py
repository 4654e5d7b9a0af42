"""Members that train, of which one kills itself. Without pytest, as each rank imports it."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from tests.simulate.test_elastic import BATCH, NUMEL, SAMPLES, gradient
from tweed.data.sampler import GlobalOrder, Sampler
from tweed.elastic import Elastic, ElasticRun, start

STEPS, KILLED_AT = 50, 20


def trains(rank: int, size: int, port: int, victim: int) -> tuple[str, Tensor, list[int]]:
    """The victim kills itself when it has computed half of its share: the others are within the exchange."""
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    control = start(store, rank, size, Elastic(1, size))
    run = ElasticRun(control, Sampler(GlobalOrder(SAMPLES, seed=1), BATCH), timeout_s=60)
    params = torch.zeros(NUMEL, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([params], lr=0.5, momentum=0.9)
    for step in range(STEPS):

        def of_samples(samples: Sequence[int], step: int = step) -> Tensor:
            if rank == victim and step == KILLED_AT:
                os.kill(os.getpid(), signal.SIGKILL)
            return gradient(params.detach(), samples)

        params.grad = run.step(of_samples)
        optimizer.step()
    run.finish()
    control.close()
    return hashlib.sha256(params.detach().numpy().tobytes()).hexdigest(), params.detach(), run.epochs
