"""Accelerate: DDP by its own prepare, and a strategy by ours."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.integrations.ranks import in_ranks, needs, values

needs("accelerate")


def trained(strategy: str | None) -> tuple[list[float], list[float], int]:
    """Parameters before the run ends and after it, and the exchanges of four steps of two batches each."""
    from accelerate import Accelerator

    from tweed.integrations.accelerate import prepare

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(64, 8)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), 4)
    run: Any = None
    if strategy is None:
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    else:
        run, model, optimizer, loader = prepare(accelerator, model, optimizer, loader, strategy=strategy)
    for inputs, targets in loader:
        with accelerator.accumulate(model):
            accelerator.backward(F.mse_loss(model(inputs), targets))
            optimizer.step()
            optimizer.zero_grad()
    before = values(model)
    if run is not None:
        run.finish()
        run.detach()
    return before, values(model), 0 if run is None else run.stats.exchanges


@pytest.fixture(scope="module")
def ddp() -> list[tuple[list[float], list[float], int]]:
    return in_ranks(trained, None)


def test_every_step_gives_what_ddp_gives(ddp: list[tuple[list[float], list[float], int]]) -> None:
    first, second = in_ranks(trained, "every_step")
    assert first[1] == second[1] == pytest.approx(ddp[0][1])
    assert first[2] == 4  # of eight batches


def test_local_steps_end_with_one_model() -> None:
    first, second = in_ranks(trained, "local_steps:3")
    assert first[0] != second[0] and first[1] == second[1]
