"""What encoding takes where a controller holds the threshold."""

from __future__ import annotations

import time

import torch

from tweed.compress import Spec, Threshold, Turn

#: Turns with values of their own, after one that finds the threshold.
TURNS = 20


def holding(compressor: Threshold, numel: int) -> tuple[float, float]:
    """Seconds per encoding of Gaussian values with error feedback, other values at each turn, on one thread.

    Returns: for the first turn, which knows no threshold, and the fastest of those after it.
    """
    torch.set_num_threads(1)
    spec, generator = Spec(((numel,),)), torch.Generator().manual_seed(0)
    value, error, state = torch.empty(numel), torch.zeros(numel), compressor.start(spec)
    seconds = []
    for turn in range(1 + TURNS):
        value.normal_(generator=generator)
        began = time.perf_counter()
        _, state = compressor.encode(value, state, Turn(spec, turn), error)
        seconds.append(time.perf_counter() - began)
    return seconds[0], min(seconds[1:])
