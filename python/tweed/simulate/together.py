"""Flights of all workers of one process, walked side by side: the network is a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tweed.attach.flight import Flight, Share, Sum, Swap, Transfer
from tweed.compress import Placed


@dataclass(slots=True)
class Traffic:
    """What `size` workers have said and were told, headers of packets included.

    Attributes:
      up_bytes: mean over workers of what they said: their packets.
      down_bytes: mean over workers of what they were told: averages.
    """

    size: int
    up_bytes: float = 0.0
    down_bytes: float = 0.0

    @property
    def bytes(self) -> float:
        """Both directions."""
        return self.up_bytes + self.down_bytes


def together(flights: Sequence[Flight], traffic: Traffic) -> list[Placed]:
    """Walks flights to their end, one per worker by rank; all must ask for the same transfers."""
    answers: Sequence[Any] = [None] * len(flights)
    while True:
        transfers, placed = [], []
        for journey, answer in zip(flights, answers, strict=True):
            try:
                transfers.append(journey.send(answer))
            except StopIteration as end:
                placed.append(end.value)
        if placed:
            assert not transfers, "some workers' exchange has ended, and others' has not"
            return placed
        answers = _answers(transfers, traffic)


def _answers(transfers: Sequence[Transfer], traffic: Traffic) -> Sequence[Any]:
    sums = [transfer.values for transfer in transfers if isinstance(transfer, Sum)]
    swaps = [transfer.pieces for transfer in transfers if isinstance(transfer, Swap)]
    shares = [transfer.piece for transfer in transfers if isinstance(transfer, Share)]
    size = len(transfers)
    assert size in (len(sums), len(swaps), len(shares)), "workers ask for different transfers"
    if sums:
        return _summed(sums, traffic)
    traffic.up_bytes += sum(piece.nbytes for pieces in swaps for piece in pieces) / size
    traffic.down_bytes += sum(piece.nbytes for piece in shares)
    return [[pieces[rank] for pieces in swaps] for rank in range(size)] if swaps else [shares] * size


def _summed(values: Sequence[Tensor], traffic: Traffic) -> list[Tensor]:
    total = values[0].clone()
    for more in values[1:]:
        total.add_(more)
    traffic.up_bytes += sum(value.nbytes for value in values) / len(values)
    traffic.down_bytes += total.nbytes
    return [total, *(total.clone() for _ in values[1:])]
