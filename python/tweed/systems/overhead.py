"""What encoding takes on this machine."""

from __future__ import annotations

import statistics
import time

import torch

from tweed.compress import Spec, Threshold, Turn

ROUNDS = 5


def encoding(compressor: Threshold, numel: int) -> tuple[float, float]:
    """Seconds per encoding with error feedback of a buffer of Gaussian numbers, on one thread; medians.

    Returns: for a turn that finds thresholds, and for one that has them from before.
    """
    torch.set_num_threads(1)
    spec = Spec(((numel,),))
    value = torch.randn(numel, generator=torch.Generator().manual_seed(0))
    found, kept = [], []
    for _ in range(ROUNDS):
        error, state = torch.zeros(numel), compressor.start(spec)
        began = time.perf_counter()
        _, state = compressor.encode(value.clone(), state, Turn(spec, 0), error)
        middle = time.perf_counter()
        compressor.encode(value.clone(), state, Turn(spec, compressor.lifespan - 1), error)
        found.append(middle - began)
        kept.append(time.perf_counter() - middle)
    return statistics.median(found), statistics.median(kept if compressor.lifespan > 1 else found)
