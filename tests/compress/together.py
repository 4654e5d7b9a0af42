"""All ranks of a group in one process: their flights walked side by side, what they send swapped by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tweed.attach.flight import Flight, Luggage, Share, Sum, Swap, Transfer, flight, pack
from tweed.compress import Memory, Placed, Spec, Turn


class Together:
    """`size` ranks that exchange one buffer again and again.

    Attributes:
      said_bytes: by each rank in the last exchange, headers included: of a sum its values; of pieces all of
        them, its own too; of an answer the answer once.
    """

    def __init__(self, memory: Memory[Any], spec: Spec, size: int) -> None:
        self.spec, self.size, self.step = spec, size, 0
        self.luggage: list[Luggage] = [pack(memory, spec, torch.zeros(spec.numel)) for _ in range(size)]
        self.said_bytes = [0] * size

    def exchange(self, values: Sequence[Tensor], silent: Sequence[bool] = ()) -> list[Placed]:
        """What is to be done to each rank's model, in memory of its own. `values` stay as they are."""
        quiet = silent or [False] * self.size
        flights = []
        for rank, value in enumerate(values):
            turn = Turn(self.spec, self.step, 0, rank, self.size)
            flights.append(flight(self.luggage[rank], value.clone(), turn, quiet[rank]))
        self.step += 1
        self.said_bytes = [0] * self.size
        return [_own(placed) for placed in self._walked(flights)]

    def _walked(self, flights: list[Flight]) -> list[Placed]:
        answers: list[Any] = [None] * self.size
        while True:
            nexts = [_sent(one, answer) for one, answer in zip(flights, answers, strict=True)]
            placed = [next_ for next_ in nexts if isinstance(next_, Placed)]
            if placed:
                assert len(placed) == self.size, "some ranks are done while others go on"
                return placed
            answers = self._answers([next_ for next_ in nexts if not isinstance(next_, Placed)])

    def _answers(self, transfers: list[Transfer]) -> list[Any]:
        assert len({type(transfer) for transfer in transfers}) == 1, "ranks do not agree on what comes next"
        sums = [transfer.values for transfer in transfers if isinstance(transfer, Sum)]
        swaps = [transfer.pieces for transfer in transfers if isinstance(transfer, Swap)]
        shares = [transfer.piece for transfer in transfers if isinstance(transfer, Share)]
        for rank, said in enumerate([*sums, *map(torch.cat, swaps), *shares]):
            self.said_bytes[rank] += said.numel() * said.element_size()
        if sums:
            return [torch.stack(sums).sum(0) for _ in sums]
        if swaps:
            return [[pieces[rank].clone() for pieces in swaps] for rank in range(self.size)]
        return [[piece.clone() for piece in shares] for _ in shares]


def _sent(one: Flight, answer: Any) -> Transfer | Placed:
    try:
        return one.send(answer)
    except StopIteration as end:
        placed: Placed = end.value
        return placed


def _own(placed: Placed) -> Placed:
    shift = None if placed.shift is None else placed.shift.clone()
    return replace(placed, advance=placed.advance.clone(), shift=shift)
