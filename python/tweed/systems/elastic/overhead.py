"""What being members costs where nobody is lost: one loop of `tweed.attach`, with `elastic=` and without."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import tweed
from tweed.systems.elastic.member_runs import NETWORK
from tweed.systems.elastic.watched import control
from tweed.testbed import run_ranks

#: Of the model: its layers, the elements of each, and the seconds of a pass. A bucket has one or two layers.
_LAYERS, _NUMEL, _FORWARD_S, _BACKWARD_S = 8, 160_000, 0.1, 0.3
_BUCKET_BYTES = 2**20
_BATCH = 64
#: Parts of that, for a curve over the length of a step.
SCALES = (1, 8, 32, 128)


class _Pass(torch.autograd.Function):
    """A pass of one layer: what a processor would compute is a sleep."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        """Sleeps, and returns the input."""
        time.sleep(_FORWARD_S / _LAYERS * weight.numel() / _NUMEL)
        ctx.save_for_backward(weight)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        """Sleeps, and returns the gradients."""
        (weight,) = ctx.saved_tensors
        time.sleep(_BACKWARD_S / _LAYERS * weight.numel() / _NUMEL)
        return grads[0], torch.ones_like(weight)


class _Model(nn.Module):
    def __init__(self, scale: int) -> None:
        super().__init__()
        self.layers = nn.ParameterList([torch.zeros(_NUMEL // scale) for _ in range(_LAYERS)])

    def forward(self, x: Tensor) -> Tensor:
        for weight in self.layers:
            x = _Pass.apply(x, weight)
        return x


def overhead(workers: int, rounds: int, steps: int, scale: int = 1) -> dict[str, list[float]]:
    """Seconds of steps at rank 0, of members and of ranks of a plain group, in turns. Both exchange buckets
    while the backward pass computes what is behind them.

    Args:
      scale: computing and the model are this many times smaller.

    Raises: NoTestbed.

    Cost: `rounds` times `steps` steps of each, of 0.9 s over the scale, and 5 s per round.
    """
    found: dict[str, list[float]] = {"members": [], "plain": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            run = partial(run_ranks, network=NETWORK, timeout=600.0)
            found["members"] += run(_member, workers, Path(folder), steps, scale)[0]
        found["plain"] += run(_plain, workers, steps, scale, backend="tweed")[0]
    return found


def _member(rank: int, size: int, folder: Path, steps: int, scale: int) -> list[float]:
    model, data = _Model(scale), TensorDataset(torch.ones(_BATCH, 1))
    optimizer, elastic = torch.optim.Adam(model.parameters()), control(0, rank, size, size, folder)
    with tweed.attach(model, optimizer, elastic=elastic, bucket_bytes=_BUCKET_BYTES) as run:
        return _spans(model, optimizer, (batch for (batch,) in run.batches(data, steps, _BATCH)))


def _plain(rank: int, size: int, steps: int, scale: int) -> list[float]:
    model = _Model(scale)
    optimizer = torch.optim.Adam(model.parameters())
    with tweed.attach(model, optimizer, bucket_bytes=_BUCKET_BYTES):
        return _spans(model, optimizer, [torch.ones(_BATCH // size, 1)] * steps)


def _spans(model: nn.Module, optimizer: torch.optim.Optimizer, batches: Iterable[Tensor]) -> list[float]:
    """Seconds of each step but the first two."""
    ends = []
    for batch in batches:
        model(batch).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        ends.append(time.monotonic())
    return [end - begin for begin, end in pairwise(ends[1:])]
