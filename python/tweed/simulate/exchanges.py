"""The exchanges of all workers of one process, side by side, over a virtual network that may lose parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tweed.compress import Update
from tweed.errors import UsageError
from tweed.exchange.owners import Owners, mean_of
from tweed.exchange.transfers import (
    AllGather,
    AllReduce,
    AllToAll,
    Averaged,
    BufferExchange,
    Crossed,
    Piece,
    Total,
    Transfer,
)
from tweed.rng import uniform


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
        """The bytes of both directions, sent and received."""
        return self.up_bytes + self.down_bytes


@dataclass(frozen=True, slots=True)
class PacketLoss:
    """Which datagrams of contributions get lost: each alike, by chance.

    Args:
      share: of datagrams, from 0 to 1.
      seed: of the draws.
      datagram_bytes: payload of one, a multiple of 8.

    Raises: UsageError for a share that cannot be.
    """

    share: float
    seed: int = 0
    datagram_bytes: int = 1200

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise UsageError(f"packet loss: share={self.share!r} is no share of datagrams; give 0 to 1")

    def ranges(self, numbytes: int, *key: int) -> list[tuple[int, int]]:
        """What is lost of a message of so many bytes that `key` names."""
        starts = range(0, numbytes, self.datagram_bytes)
        lost = [at for at in starts if uniform(self.seed, *key, at) < self.share]
        return [(at, min(numbytes, at + self.datagram_bytes)) for at in lost]


class VirtualNetwork:
    """What lies between the workers of one process.

    Args:
      owners: as any of the workers sees them.
      loss: what gets lost; None: nothing.

    Attributes:
      traffic: of all exchanges so far.
    """

    def __init__(self, owners: Owners, loss: PacketLoss | None = None) -> None:
        self._owners, self._loss = owners, loss
        self._rounds = 0
        self.traffic = Traffic(owners.contributors)

    def sum(self, values: Sequence[Tensor]) -> list[Update]:
        """The sum of what ranks contribute, for each of them, as a collective forms it on its way."""
        given = [value for rank, value in enumerate(values) if rank != self._owners.server]
        total = self._added(given)
        return [Update(total.clone()) for _ in values]

    def run(self, exchanges: Sequence[BufferExchange]) -> list[Update]:
        """Runs exchanges to their end, one per rank; all must ask for the same transfers."""
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
            answers = self._answers(transfers)
            self._rounds += 1

    def _answers(self, transfers: Sequence[Transfer]) -> Sequence[Any]:
        sums = [one for one in transfers if isinstance(one, AllReduce)]
        pieces = [one.pieces for one in transfers if isinstance(one, AllToAll)]
        replies = [one.piece for one in transfers if isinstance(one, AllGather)]
        totals = [one.values for one in transfers if isinstance(one, Total)]
        size = len(transfers)
        kinds = (len(sums), len(pieces), len(replies), len(totals))
        assert size in kinds, "workers ask for different transfers"
        if sums:
            return self._averaged(sums)
        if pieces:
            return self._crossed(pieces)
        if totals:
            self.traffic.up_bytes += totals[0].nbytes
            return [torch.stack(totals).sum(dim=0)] * size
        self.traffic.down_bytes += sum(piece.nbytes for piece in replies)
        return [replies] * size

    def _averaged(self, sums: Sequence[AllReduce]) -> list[Averaged]:
        owners = self._owners
        lost = [self._lost_values(one, rank) for rank, one in enumerate(sums)]
        total = self._added([one.values for rank, one in enumerate(sums) if rank != owners.server])
        mean = mean_of(total, owners.contributors) if not owners.by_delivered else total.float()
        if owners.by_delivered:
            mean /= self._delivered(lost, mean)
        return [Averaged(mean.clone(), mine) for mine in lost]

    def _added(self, given: Sequence[Tensor]) -> Tensor:
        """In the order of ranks, as the engine does: 16 bits are added up in 32, and rounded once."""
        self.traffic.up_bytes += sum(values.nbytes for values in given) / len(given)
        total = given[0].to(torch.float32, copy=True)
        for values in given[1:]:
            total.add_(values)
        total = total.to(given[0].dtype)
        self.traffic.down_bytes += total.nbytes
        return total

    def _lost_values(self, one: AllReduce, rank: int) -> list[tuple[int, Tensor]]:
        """Puts zeros where values get lost, and returns these."""
        if self._loss is None or one.whole or rank == self._owners.server:
            return []
        width = one.values.element_size()
        found = []
        for begin, end in self._loss.ranges(one.values.nbytes, self._rounds, rank):
            part = one.values[begin // width : end // width]
            found.append((begin // width, part.clone()))
            part.zero_()
        return found

    def _delivered(self, lost: Sequence[Sequence[tuple[int, Tensor]]], like: Tensor) -> Tensor:
        """How many contributions have come to each value, at least one."""
        count = torch.full_like(like, self._owners.contributors)
        for first, part in (pair for mine in lost for pair in mine):
            count[first : first + len(part)] -= 1
        return count.clamp_(min=1)

    def _crossed(self, pieces: Sequence[Sequence[Piece]]) -> list[Crossed]:
        size = len(pieces)
        self.traffic.up_bytes += sum(one.data.nbytes for mine in pieces for one in mine) / self.traffic.size
        lost = [[self._lost_bytes(pieces[src][dst], src, dst) for dst in range(size)] for src in range(size)]
        for mine, ranges in zip(pieces, lost, strict=True):
            for piece, of_piece in zip(mine, ranges, strict=True):
                for begin, end in of_piece:
                    piece.data[piece.critical :][begin:end] = 0
        return [
            Crossed([mine[rank].data for mine in pieces], [ranges[rank] for ranges in lost], lost[rank])
            for rank in range(size)
        ]

    def _lost_bytes(self, piece: Piece, src: int, dst: int) -> list[tuple[int, int]]:
        if self._loss is None or src == dst:  # nothing crosses the network
            return []
        return self._loss.ranges(piece.data.numel() - piece.critical, self._rounds, src, dst)
