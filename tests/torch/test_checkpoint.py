"""Checkpoints that torch saves beside the training, and what two threads on one group come to."""

from __future__ import annotations

import threading
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint

from tweed.errors import ShapeMismatch
from tweed.testbed import run_ranks


def trains_while_it_saves(rank: int, size: int, folder: Path) -> tuple[float, bool]:
    model = torch.nn.Linear(64, 64)
    dist.broadcast(model.weight.data, 0)
    saved = model.weight.detach().clone()
    group = dist.new_group(backend="tweed")
    saving = checkpoint.async_save({"model": model.state_dict()}, checkpoint_id=folder, process_group=group)
    total, done = torch.zeros(1), torch.zeros(1)
    while not done.item():
        dist.all_reduce(total.fill_(1))
        dist.all_reduce(done.fill_(saving.done()), op=dist.ReduceOp.MIN)
    saving.result()
    again = {"model": {name: torch.zeros_like(value) for name, value in model.state_dict().items()}}
    checkpoint.load(again, checkpoint_id=folder)
    return total.item(), torch.equal(again["model"]["weight"], saved)


def test_a_checkpoint_is_saved_beside_the_training_over_a_group_of_its_own(tmp_path: Path) -> None:
    assert run_ranks(trains_while_it_saves, 2, tmp_path / "saved", backend="tweed") == [(2.0, True)] * 2


def mixes_threads(rank: int, size: int) -> str:
    other = threading.Thread(target=lambda: dist.all_reduce(torch.ones(1)))
    other.start()
    other.join()
    try:
        if rank == 0:
            dist.all_reduce(torch.ones(1))
        else:
            dist.all_gather_into_tensor(torch.empty(size), torch.ones(1))
    except ShapeMismatch as error:
        return str(error)
    return ""


def test_a_disagreement_after_calls_of_two_threads_says_that_it_may_be_theirs() -> None:
    for text in run_ranks(mixes_threads, 2, backend="tweed"):
        assert "ranks disagree" in text
        assert "Several threads of this process have called on this group" in text
        assert "torch.distributed.new_group" in text
