"""Workloads recorded from real models, under a clock that counts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest
import torch
from torch import nn

from tweed.errors import UsageError
from tweed.simulate import workload
from tweed.simulate.recorded import recorded


def ticking() -> Callable[[], float]:
    ticks = count()
    return lambda: float(next(ticks))


def test_layers_come_with_their_bytes_and_in_forward_order() -> None:
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    with recorded(model, ticking()) as recording:
        model(torch.ones(4, 3)).sum().backward()
    load = recording.workload("mine")
    assert [(layer.name, layer.numbytes) for layer in load.layers] == [("0", 80), ("2", 48)]
    # A tick each for the start, the end of forward, and each of four gradients.
    assert (load.forward_s, [layer.backward_s for layer in load.layers]) == (1.0, [2.0, 2.0])
    assert workload.step(load, lambda numbytes: 1.0, overlap=True).seconds == 6.0


def test_hooks_are_gone_afterwards_and_nothing_is_an_error() -> None:
    model = nn.Linear(3, 5)
    with recorded(model, ticking()) as recording:
        pass
    model(torch.ones(4, 3)).sum().backward()
    with pytest.raises(UsageError, match="nothing was recorded"):
        recording.workload("mine")
