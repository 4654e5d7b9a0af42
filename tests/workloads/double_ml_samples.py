"""Samples with a known effect, and what runs tasks in this process, for tests of double machine learning."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

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


def ids_bytes(row: Any, fold: int) -> int:
    """How long a training set is as a list of ids in JSON."""
    return len(json.dumps(np.flatnonzero(row != fold).tolist(), separators=(",", ":")))
