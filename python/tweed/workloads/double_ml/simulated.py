"""Samples with a known effect, to see whether intervals hold it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tweed.errors import UsageError
from tweed.workloads.double_ml.data import Sample

#: The effect, for each unit of every simulated sample.
THETA = 0.5


def simulated_sample(model: str, units: int = 200, seed: int = 0, controls: int = 5) -> Sample:
    """A sample that goes with this model, whose effect is THETA for each unit.

    Two controls move outcome, treatment and instrument linearly; a third moves the treatment, where there is
    an instrument. Noise is normal or logistic.

    Args:
      model: "PLR", "PLIV", "IRM" or "IIVM".
      controls: 3 or more.
      seed: the same seed gives the same sample.

    Raises: UsageError for another model, or fewer controls.

    Example:
      >>> simulated_sample("PLIV", units=100).x.shape
      (100, 5)
    """
    if model not in ("PLR", "PLIV", "IRM", "IIVM") or controls < 3:
        raise UsageError(
            f"no sample of {model!r} with {controls} controls: give PLR, PLIV, IRM or IIVM, and 3 or more"
        )
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
