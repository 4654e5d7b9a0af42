"""The exchanges of all workers of one process, run side by side: the network is a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tweed.compress import Update
from tweed.exchange.transfers import AllGather, AllReduce, AllToAll, BufferExchange, Transfer


@dataclass(slots=True)
class Traffic:
    """What `size` workers have sent and received, headers of packets included.

    Attributes:
      up_bytes: mean over workers of what they sent: their packets.
      down_bytes: mean over workers of what they received: averages.
    """

    size: int
    up_bytes: float = 0.0
    down_bytes: float = 0.0

    @property
    def bytes(self) -> float:
        """Both directions."""
        return self.up_bytes + self.down_bytes


def run_exchanges(exchanges: Sequence[BufferExchange], traffic: Traffic) -> list[Update]:
    """Runs exchanges to their end, one per worker by rank; all must ask for the same transfers."""
    answers: Sequence[Any] = [None] * len(exchanges)
    while True:
        transfers, updates = [], []
        for exchange, answer in zip(exchanges, answers, strict=True):
            try:
                transfers.append(exchange.send(answer))
            except StopIteration as end:
                updates.append(end.value)
        if updates:
            assert not transfers, "some workers' exchange has ended, and others' has not"
            return updates
        answers = _answers(transfers, traffic)


def _answers(transfers: Sequence[Transfer], traffic: Traffic) -> Sequence[Any]:
    sums = [transfer.values for transfer in transfers if isinstance(transfer, AllReduce)]
    pieces = [transfer.pieces for transfer in transfers if isinstance(transfer, AllToAll)]
    replies = [transfer.piece for transfer in transfers if isinstance(transfer, AllGather)]
    size = len(transfers)
    assert size in (len(sums), len(pieces), len(replies)), "workers ask for different transfers"
    if sums:
        return _summed(sums, traffic)
    traffic.up_bytes += sum(piece.nbytes for mine in pieces for piece in mine) / size
    traffic.down_bytes += sum(piece.nbytes for piece in replies)
    return [[mine[rank] for mine in pieces] for rank in range(size)] if pieces else [replies] * size


def _summed(values: Sequence[Tensor], traffic: Traffic) -> list[Tensor]:
    total = values[0].clone()
    for more in values[1:]:
        total.add_(more)
    traffic.up_bytes += sum(value.nbytes for value in values) / len(values)
    traffic.down_bytes += total.nbytes
    return [total, *(total.clone() for _ in values[1:])]
