"""Online federated learning: OFedAvg, and OFedQIT with quantised messages and intermittent transmission."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from tweed.cadence import Intermittent, Joined
from tweed.compress import Identity, Levels, Spec, Turn
from tweed.compress.packet import HEADER_BYTES
from tweed.systems.ofedqit_streams import Learner, Stream


@dataclass(frozen=True, slots=True)
class Split:
    """How bytes are spent.

    Attributes:
      probability: with which a client sends at the end of a round.
      every: slots per round.
      levels: of the quantiser; None: numbers go as they are.
      pieces: into which a message is cut, each with a norm of its own.
    """

    probability: float = 1.0
    every: int = 1
    levels: int | None = None
    pieces: int = 1

    def message_bits(self, numel: int) -> int:
        """Of one message: OFedQIT's formula."""
        if self.levels is None:
            return 32 * numel
        return 32 * self.norms(numel) + numel * (1 + self.levels.bit_length())

    def share(self, numel: int) -> float:
        """Of OFedAvg's traffic, where every client sends every slot."""
        return self.probability / self.every * self.message_bits(numel) / (32 * numel)

    def block(self, numel: int) -> int:
        """Numbers that share a norm: as even as pieces come out."""
        return -(-numel // self.pieces)

    def norms(self, numel: int) -> int:
        """Norms in a message. With blocks of whole numbers the last pieces may be empty."""
        return -(-numel // self.block(numel))


@dataclass(slots=True)
class Told:
    """What came of a stream.

    Attributes:
      losses: mean over clients, per slot, before the sample was learned.
      right: share of clients whose class was right, per slot.
      sent_bytes: by all clients, without headers.
      messages: how many.
      params: `[numel]` at the end.
    """

    losses: list[float] = field(default_factory=list)
    right: list[float] = field(default_factory=list)
    sent_bytes: int = 0
    messages: int = 0
    params: Tensor = field(default_factory=lambda: torch.empty(0))


#: Makes the server's optimizer of one parameter.
MakeOptimizer = Callable[[list[Tensor]], Optimizer]


def learn(learner: Learner, stream: Stream, split: Split, make: MakeOptimizer, seed: int = 0) -> Told:
    """Clients predict, suffer, and accumulate gradients; at the end of a round those that are drawn send
    them.

    Who is not drawn forgets. The server sums, divides by the number of clients, and takes one step. All
    clients then have its model; that broadcast is not counted, as in the paper.
    """
    server = _Server(learner, split, make, stream.y.shape[1], seed)
    told = Told()
    for first in range(0, len(stream.y), split.every):
        server.round(stream.x[first : first + split.every], stream.y[first : first + split.every], told)
    told.params = server.params.detach().clone()
    return told


class _Server:
    """The model, the clients' cadences, and their messages."""

    def __init__(self, learner: Learner, split: Split, make: MakeOptimizer, clients: int, seed: int) -> None:
        self._learner, self._split, self._clients = learner, split, clients
        self.params = learner.start.clone().requires_grad_()
        self._optimizer = make([self.params])
        self._cadence = Intermittent(probability=split.probability, seed=seed)
        start = self._cadence.start()
        self._paces: list[Any] = [
            self._cadence.handle(Joined(rank, clients), start, 0.0) for rank in range(clients)
        ]
        self._spec = Spec(learner.shapes)
        self._compressor = _compressor(split, self._spec.numel, seed)
        self._rounds = 0

    def round(self, x: Tensor, y: Tensor, told: Told) -> None:
        """The slots of one round, and the server's step."""
        drawn = self._drawn()
        sums = torch.zeros(len(drawn), self._spec.numel)
        for slot in range(len(y)):
            self._slot(x[slot], y[slot], drawn, sums, told)
        total = torch.zeros(self._spec.numel)
        for rank, value in zip(drawn, sums, strict=True):
            turn = Turn(self._spec, self._rounds, 0, rank, self._clients)
            packet, _ = self._compressor.encode(value.div_(self._split.probability), None, turn)
            packet.add_to(total)
            told.sent_bytes += packet.pack().numel() - HEADER_BYTES
            told.messages += 1
        self._rounds += 1
        self.params.grad = total.div_(self._clients)
        self._optimizer.step()

    def _drawn(self) -> list[int]:
        """The clients that will send at the end of this round."""
        drawn = []
        for rank, pace in enumerate(self._paces):
            decision, self._paces[rank] = self._cadence.poll(pace, 0.0)
            if not decision.silent:
                drawn.append(rank)
        return drawn

    def _slot(self, x: Tensor, y: Tensor, drawn: Sequence[int], sums: Tensor, told: Told) -> None:
        """One sample per client. Only who will send works out a gradient: the others would forget it."""
        params = self.params.detach()
        if len(drawn) < len(y):
            with torch.no_grad():
                outputs = self._learner.outputs(params.expand(len(y), -1), x)
        if drawn:
            picked, gradients = self._learner.gradients(params, x[drawn], y[drawn])
            sums += gradients
            outputs = picked if len(drawn) == len(y) else outputs
        told.losses.append(float(self._learner.losses(outputs, y).mean()))
        told.right.append(float((outputs.argmax(dim=1) == y).float().mean()))


def _compressor(split: Split, numel: int, seed: int) -> Identity | Levels:
    if split.levels is None:
        return Identity()
    return Levels(split.levels, split.block(numel), both_ways=False, seed=seed)
