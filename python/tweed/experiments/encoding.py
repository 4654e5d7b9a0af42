"""What compression takes on this machine."""

from __future__ import annotations

import time

import torch

from tweed.compress import Spec, Threshold, Turn

ROUNDS = 9


def encoding(compressor: Threshold, numel: int) -> tuple[float, float]:
    """Seconds per encoding with error feedback of a buffer of Gaussian values, on one thread; the fastest of
    some rounds, so that others on the machine do not count. Each sends the same values.

    Returns: for a turn that finds thresholds, and for one that has them from before.
    """
    torch.set_num_threads(1)
    spec = Spec(((numel,),))
    given = torch.randn(numel, generator=torch.Generator().manual_seed(0))
    value, error = torch.empty(numel), torch.empty(numel)
    found: list[float] = []
    kept: list[float] = []
    for _ in range(ROUNDS):
        state = compressor.start(spec)
        for turn, seconds in ((Turn(spec, 0), found), (Turn(spec, compressor.lifespan - 1), kept)):
            value.copy_(given)
            error.zero_()
            began = time.perf_counter()
            _, state = compressor.encode(value, state, turn, error)
            seconds.append(time.perf_counter() - began)
    return min(found), min(kept if compressor.lifespan > 1 else found)


def selection(count: int, numel: int) -> float:
    """Seconds in which torch finds the `count` largest magnitudes of Gaussian values; fastest of three."""
    torch.set_num_threads(1)
    value = torch.randn(numel, generator=torch.Generator().manual_seed(0))
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        value.abs().topk(count)
        seconds.append(time.perf_counter() - began)
    return min(seconds)
