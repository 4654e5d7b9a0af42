"""All ranks of a group in one process, which exchange one buffer again and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tweed.attach.flight import Luggage, flight, pack
from tweed.compress import Memory, Placed, Spec, Turn
from tweed.simulate.together import Traffic, together


class Together:
    """`size` ranks with a memory each.

    Attributes:
      traffic: of all exchanges so far.
    """

    def __init__(self, memory: Memory[Any], spec: Spec, size: int) -> None:
        self.spec, self.size, self.step = spec, size, 0
        self.luggage: list[Luggage] = [pack(memory, spec, torch.zeros(spec.numel)) for _ in range(size)]
        self.traffic = Traffic(size)

    def exchange(self, values: Sequence[Tensor], silent: Sequence[bool] = ()) -> list[Placed]:
        """What is to be done to each rank's model, in memory of its own. `values` stay as they are."""
        quiet = silent or [False] * self.size
        flights = []
        for rank, value in enumerate(values):
            turn = Turn(self.spec, self.step, 0, rank, self.size)
            flights.append(flight(self.luggage[rank], value.clone(), turn, quiet[rank]))
        self.step += 1
        return [_own(placed) for placed in together(flights, self.traffic)]


def _own(placed: Placed) -> Placed:
    shift = None if placed.shift is None else placed.shift.clone()
    return replace(placed, advance=placed.advance.clone(), shift=shift)
