"""Every task: its model takes its data, and learns from it."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tweed.data import SETS, Arrays
from tweed.train.tasks import TASKS, row, task
from tweed.train.tasks.base import targets

PICTURES = np.random.default_rng(0).integers(0, 256, 40 * 784, dtype=np.uint8)
LABELS = np.arange(40, dtype=np.uint8) % 10
HEAD = np.zeros(16, dtype=np.uint8)
#: Small made files for each set, in the form of the real ones.
MADE = {
    "fashion-mnist": {
        "train-images": np.concatenate([HEAD, PICTURES]),
        "train-labels": np.concatenate([HEAD[:8], LABELS]),
        "t10k-images": np.concatenate([HEAD, PICTURES]),
        "t10k-labels": np.concatenate([HEAD[:8], LABELS]),
    },
    "digits": {"images": PICTURES[: 40 * 64] // 16, "labels": LABELS},
    "shakespeare": {"text": np.frombuffer(b"to be or not to be\n" * 200, dtype=np.uint8)},
}


def made(name: str) -> Arrays:
    entry: ModuleType = SETS[row(name).data]
    arrays: Arrays = entry.arrays(MADE[row(name).data])
    return arrays


@pytest.mark.parametrize("name", TASKS)
def test_model_takes_the_data_and_learns_from_it(name: str) -> None:
    arrays, chosen = made(name), task(name)
    torch.manual_seed(0)
    model = chosen.model(arrays)
    optimizer = chosen.optimizer(model.parameters(), row(name).lr)
    x, y = chosen.inputs(arrays.train.x[:16]), targets(arrays.train.y[:16])
    losses = []
    for _ in range(15):
        scores = model(x)
        assert scores.shape[:2] == (16, arrays.classes)
        assert scores.shape[2:] == y.shape[1:]
        loss = F.cross_entropy(scores, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.05


@pytest.mark.parametrize("name", TASKS)
def test_the_same_seed_makes_the_same_model(name: str) -> None:
    arrays = made(name)
    states = []
    for _ in range(2):
        torch.manual_seed(3)
        states.append(task(name).model(arrays).state_dict())
    for key, value in states[0].items():
        assert torch.equal(value, states[1][key])


def test_a_character_is_predicted_from_earlier_ones_only() -> None:
    arrays, chosen = made("shakespeare"), task("shakespeare")
    model = chosen.model(arrays).eval()
    x = chosen.inputs(arrays.train.x[:1]).clone()
    before = model(x)
    x[0, 20] = (x[0, 20] + 1) % arrays.classes
    after = model(x)
    assert torch.equal(before[..., :20], after[..., :20])
    assert not torch.equal(before[..., 20], after[..., 20])
