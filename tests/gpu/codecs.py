"""Codecs on tensors of the device: what others decode is what they decode of the host's."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.compress.table import TABLE, Encoder, gaussian

CODECS = {repr(codec): codec for codec in TABLE}
CASES = tuple(CODECS)
QUICK = CASES[::4]
TURNS = 3


def check(case: str, rank: int, size: int, device: torch.device) -> list[Tensor]:
    """What others decode, and what is left for later, turn by turn."""
    encoder, found = Encoder(CODECS[case]), []
    for turn in range(TURNS):
        error = torch.zeros(encoder.spec.numel, device=device)
        found += [encoder.encode(gaussian(seed=turn).to(device), error), error]
    return found
