"""DDP, the peer: within a step that somebody records it notes what it waits for, and in no other."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn

from tweed.testbed import run_ranks
from tweed.train.shard import optimizer_step
from tweed.train.sides import Ddp
from tweed.train.timeline import StepRecorder


def held_up(rank: int, size: int) -> tuple[object, int]:
    """Rank 1 computes when rank 0 waits. Returns the waits that were recorded, and hooks that are left."""
    store = dist.distributed_c10d._get_default_store()
    model = nn.Linear(4, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    side, recorder = Ddp(model, optimizer), StepRecorder(first=2)

    def loss() -> torch.Tensor:
        value: torch.Tensor = side.module(torch.ones(2, 4)).sum()  # in its second call ranks meet, too
        if rank == 1:
            store.wait([f"waits {number}"])
        return value

    def waits(_param: torch.Tensor) -> None:
        store.set(f"waits {number}", "")

    for number in (1, 2):
        with recorder.step(number), side.recorded():
            hook = model.weight.register_post_accumulate_grad_hook(waits)  # called after that of the side
            optimizer_step(optimizer, loss)
            hook.remove()
    assert recorder.found is not None and recorder.found.step == 2
    hooks = len(model.weight._post_accumulate_grad_hooks) + len(optimizer._optimizer_step_pre_hooks)  # type: ignore[attr-defined]
    return [(span.what, span.last) for span in recorder.found.spans], hooks


@pytest.mark.parametrize(("backend", "last"), [("tweed", (1, "shm")), ("gloo", None)])
def test_ddp_waits_from_the_last_gradient_on(backend: str, last: object) -> None:
    assert run_ranks(held_up, 2, backend=backend)[0] == ([("wait", last)], 0)
