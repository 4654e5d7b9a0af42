"""How long a training loop stands still for a checkpoint: members' parts beside torch's `async_save`."""

from __future__ import annotations

import importlib
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from tweed.elastic import Checkpoints
from tweed.elastic.state import State, of_objects
from tweed.testbed import run_ranks

OURS, TORCH = "tweed", "async_save"


def held_up(ranks: int, size_bytes: int, rounds: int) -> dict[str, list[float]]:
    """The seconds for which the loop stood still at the slowest rank, by side, in each round, in turns.

    The state is a model and its momentum, the same at all ranks, as replicas have it. What a side writes in
    the background is over before the other begins. Ranks are processes of this host; their group is Gloo's.
    """
    with tempfile.TemporaryDirectory() as folder:
        found = run_ranks(_rank, ranks, Path(folder), size_bytes, rounds, backend="gloo", timeout=500.0)
    rounds_of = {side: zip(*(rank[side] for rank in found), strict=True) for side in found[0]}
    return {side: [max(spans) for spans in each] for side, each in rounds_of.items()}


def _rank(rank: int, size: int, folder: Path, size_bytes: int, rounds: int) -> dict[str, list[float]]:
    dcp: Any = importlib.import_module("torch.distributed.checkpoint")
    model = nn.ParameterList([torch.zeros(size_bytes // 8 // 16) for _ in range(16)])
    optimizer = torch.optim.SGD(model, lr=0.1, momentum=0.9)
    checkpoints, held = Checkpoints(folder / OURS, 1), {OURS: list[float](), TORCH: list[float]()}
    for number in range(1, rounds + 2):
        for param in model:
            param.grad = torch.full_like(param, float(number))
        optimizer.step()
        dist.barrier()
        begin = time.monotonic()
        state = State({"kept": of_objects({"model": model, "optimizer": optimizer})})
        checkpoints.write(number, rank, size, state)
        held[OURS].append(time.monotonic() - begin)
        checkpoints.wait()
        dist.barrier()
        begin = time.monotonic()
        kept: dict[str, Any] = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        saving: Any = dcp.async_save(kept, checkpoint_id=folder / f"{TORCH}-{number % 2}")
        held[TORCH].append(time.monotonic() - begin)
        saving.result()
        dist.barrier()
    return {side: spans[1:] for side, spans in held.items()}  # the first round makes threads and folders
