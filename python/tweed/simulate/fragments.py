"""Fragments of virtual workers' models, which are exchanged while workers take further steps.

What a fragment does with an update, and whose turn it is, is what runs live (`tweed.exchange.overlapped`).
There is no network to wait for: an exchange is over when it begins, and counts after its delay.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from tweed.cadence import Turns
from tweed.compress import Direct, Identity, Spec, Turn
from tweed.exchange.fragments import Fragment, cut
from tweed.exchange.owners import Owners
from tweed.exchange.transfers import BufferState, exchange_buffer
from tweed.simulate.exchanges import VirtualNetwork
from tweed.strategy import Strategy


class VirtualFragments:
    """All fragments of all workers.

    Args:
      models: of the workers.
      strategy: theirs, with a cadence that overlaps.
      owners: as each of the workers sees them.
      network: between them.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        strategy: Strategy,
        owners: Sequence[Owners],
        network: VirtualNetwork,
    ) -> None:
        cadence, memory = strategy.cadence, strategy.memory or Direct(Identity())
        self._turns = Turns(cadence.fragments, cadence.delay)
        self._network = network
        self._exchanged = [0] * cadence.fragments
        self._fragments: list[list[Fragment]] = []
        self._buffers: list[list[BufferState]] = []
        for model, of_worker in zip(models, owners, strict=True):
            params = {name: param for name, param in model.named_parameters() if param.requires_grad}
            parts = cut({name: param.shape for name, param in params.items()}, cadence.fragments)
            mine = [Fragment(params, part, sys.maxsize, memory, cadence.outer) for part in parts]
            self._fragments.append(mine)
            self._buffers.append(
                [
                    BufferState.start(memory, _spec(one), torch.empty_like(one.values[0].flat), of_worker)
                    for one in mine
                ]
            )

    def step(self) -> None:
        """All workers have taken a step: what is due moves their models."""
        self._turns = self._turns.stepped()
        self._move(self._turns.due)

    def exchange(self) -> None:
        """The fragment whose turn it is is exchanged."""
        number = self._turns.next
        self._turns = self._turns.begun()
        pairs = [
            (fragments[number], buffers[number])
            for fragments, buffers in zip(self._fragments, self._buffers, strict=True)
        ]
        exchanges = []
        for fragment, buffer in pairs:
            [value] = fragment.take([buffer])
            rank, size = buffer.owners.contributor, buffer.owners.contributors
            turn = Turn(_spec(fragment), self._exchanged[number], number, rank, size)
            exchanges.append(exchange_buffer(buffer, value, turn))
        for (fragment, buffer), update in zip(pairs, self._network.run(exchanges), strict=True):
            fragment.put([update], [buffer])
        self._exchanged[number] += 1
        self._move(self._turns.due)

    def settle(self) -> None:
        """What is under way moves models now."""
        self._move([one.fragment for one in self._turns.under_way])

    def exchange_all(self) -> None:
        """Every fragment is exchanged; nothing is under way, before and after."""
        self._turns = Turns(self._turns.fragments, self._turns.delay)
        for _ in self._exchanged:
            self.exchange()
        self.settle()

    def join(self) -> None:
        """All models become the one that workers have in common. Nothing is under way."""
        for fragments in self._fragments:
            for one in fragments:
                one.join()

    def add_known(self, params: Mapping[str, Tensor]) -> None:
        """Adds to `params` how far models of workers that contribute will move by what is under way."""
        for fragments, buffers in zip(self._fragments, self._buffers, strict=True):
            if buffers[0].owners.contributes:
                for one in fragments:
                    one.shift(params)

    def _move(self, due: Sequence[int]) -> None:
        for number in due:
            for fragments in self._fragments:
                fragments[number].move()
            self._turns = self._turns.without(number)


def _spec(fragment: Fragment) -> Spec:
    return Spec(tuple(tuple(tensor.shape) for tensor in fragment.groups()[0]))
