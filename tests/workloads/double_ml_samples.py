"""Samples with a known effect, and what runs tasks in this process, for tests of double machine learning."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.tree import DecisionTreeRegressor

from tweed.exchange.encoding import packed, unpacked
from tweed.workloads.double_ml import Sample

THETA = 0.5


def sample(model: str, units: int = 200, seed: int = 0, controls: int = 5) -> Sample:
    """A sample for this model, whose effect is THETA for each unit."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(units, controls))
    index, noise = x[:, 0] + 0.5 * x[:, 1], rng.normal(size=(3, units))
    z: Any = 0.5 * index + noise[0]
    if model == "PLR":
        d, z = z, None
    elif model == "PLIV":
        d = z + 0.5 * x[:, 2] + noise[1]
    else:
        z = (0.5 * index + rng.logistic(size=units) > 0).astype(float)
        moved = 0.25 * x[:, 2] + 2 * z - 1 + rng.logistic(size=units) > 0
        d, z = (z, None) if model == "IRM" else (moved.astype(float), z)
    return Sample(y=THETA * d + index + noise[2], d=d, x=x, z=z)


def serial(order: Callable[[list[int]], Iterable[int]] = iter) -> Any:
    """A stand-in for `map_tasks` that runs tasks here, in this order; all crosses as bytes."""

    def run(function: Any, payloads: Iterable[Any], *, shared: Any) -> Mapping[int, Any]:
        sent = [packed(payload, classes=()) for payload in payloads]
        others = unpacked(packed(shared, classes=()))
        return {task: function(unpacked(sent[task]), others) for task in order([*range(len(sent))])}

    return run


def covered(model: Any, name: str, seeds: Iterable[int], units: int = 300) -> int:
    """How many of the intervals at 95 % hold THETA, of a sample per seed."""
    intervals = (model.fit(sample(name, units, seed), seed=seed, tasks=serial()).interval() for seed in seeds)
    return sum(low <= THETA <= high for low, high in intervals)


def ids_bytes(row: Any, fold: int) -> int:
    """How long a training set is as a list of ids in JSON."""
    return len(json.dumps(np.flatnonzero(row != fold).tolist(), separators=(",", ":")))


class DiesOnce(DecisionTreeRegressor):  # type: ignore[misc]
    """A learner that draws, and whose first fit ends its process: it leaves the file `marker`."""

    def __init__(self, marker: str = "", random_state: int | None = None) -> None:
        super().__init__(max_features=1, max_depth=4, random_state=random_state)
        self.marker = marker

    def fit(self, x: Any, y: Any) -> Any:
        with suppress(FileExistsError):
            Path(self.marker).touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().fit(x, y)
