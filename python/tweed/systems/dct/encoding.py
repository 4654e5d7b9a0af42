"""What compression takes on this machine."""

from __future__ import annotations

import time

import torch

from tweed.compress import Spec, Threshold, Turn

ROUNDS = 9
#: Turns of a controller with values of their own, after one that finds the threshold.
TURNS = 20


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


def holding(compressor: Threshold, numel: int) -> tuple[float, float]:
    """As `encoding`, where a controller holds the threshold: other values at each turn, as it follows them.

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
