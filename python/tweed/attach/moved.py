"""Exchange of how far parameters have moved, compressed, between optimizer steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tweed.attach.bucket import Bucket, assign, item, room
from tweed.attach.finite import tell
from tweed.attach.model import ModelExchange
from tweed.attach.pilot import make_parcels
from tweed.attach.stored import filled, plain
from tweed.attach.wire import Wire
from tweed.cadence import Outer
from tweed.compress import Memory, Placed


class MovementExchange:
    """Exchanges `parameter - reference`: the reference is where this rank stood after the last exchange.

    Args:
      params: by name.
      rest: exchanges all else that is averaged, such as the statistics of batch norm, as it is.
      wire: the group.
      bucket_bytes: size of a full bucket.
      memory: the strategy's.
      outer: what becomes of the average movement; None: it is what the reference moves by.

    Cost: memory for the references, the values and an average: three models in float32, beside what memory
      and outer optimiser keep.
    """

    def __init__(
        self,
        params: Mapping[str, Tensor],
        rest: ModelExchange | None,
        wire: Wire,
        bucket_bytes: int,
        memory: Memory[Any],
        outer: Outer[Any] | None = None,
    ) -> None:
        tensors = [param.detach() for param in params.values()]
        self._members = members = assign([item(tensor) for tensor in tensors], bucket_bytes)
        names = list(params)
        self._names = [[names[index] for index in bucket] for bucket in members]
        self._params = [[tensors[index] for index in bucket] for bucket in members]
        self._moved = [_bucket(group) for group in self._params]
        self._stood = [_bucket(group) for group in self._params]
        self._withheld: list[Tensor | None] = [None] * len(members)
        self._ahead = False
        self._rest = rest
        self._wire = wire
        self._memory = memory
        self._parcels = make_parcels(memory, self._params, wire)
        self._outer = outer
        self._outer_states = [outer.start(stood.flat) if outer else None for stood in self._stood]
        for group, stood in zip(self._params, self._stood, strict=True):
            for param, view in zip(group, stood.views, strict=True):
                view.copy_(param)

    def weigh(self) -> float:
        """Length of what this rank would say in `exchange`."""
        return self._parcels.weigh(self._movements())

    def exchange(self, *, silent: bool = False) -> None:
        """Exchanges, and puts parameters where the memory says. Waits for it.

        Raises: NonFinite, on all ranks, if a number of one is not finite. Nothing was exchanged or changed.
        """
        values = self._movements()
        told = tell(self._moved, [[True] * len(names) for names in self._names], self._wire)
        error = told.error(self._names)
        if error is not None:
            raise error
        placed = self._parcels.exchange(values, silent=silent)
        self._ahead = any(one.shift is not None for one in placed)
        for index, one in enumerate(placed):
            self._place(index, one)
        if self._rest is not None:
            self._rest.average()
        self._wire.settle()

    @torch.no_grad()
    def _movements(self) -> list[Tensor]:
        for group, moved, stood, held in zip(
            self._params, self._moved, self._stood, self._withheld, strict=True
        ):
            for param, view in zip(group, moved.views, strict=True):
                view.copy_(param)
            moved.flat.sub_(stood.flat)
            if held is not None:
                moved.flat.add_(held)
        return [moved.flat for moved in self._moved]

    @torch.no_grad()
    def _place(self, index: int, placed: Placed) -> None:
        group, stood, advance = self._params[index], self._stood[index], placed.advance
        if self._outer is not None:
            advance = self._outer.advance(advance, self._outer_states[index])
        stood.flat.add_(advance)
        self._withheld[index] = None
        _put(stood if placed.shift is None else Bucket(stood.flat + placed.shift, group), group)

    def references(self) -> list[Tensor] | None:
        """Where ranks would stand without the shift, one per parameter, in order; None: there is no shift."""
        if not self._ahead:
            return None
        places = zip(self._members, self._stood, strict=True)
        by_index = {
            index: view for members, stood in places for index, view in zip(members, stood.views, strict=True)
        }
        return [by_index[index] for index in range(len(by_index))]

    @torch.no_grad()
    def unite(self) -> None:
        """Makes models equal on all ranks, if the memory lets them differ. Training may go on."""
        if self._memory.forks:
            for stood in self._stood:
                self._wire.wait(self._wire.sum(stood.flat))
                stood.flat.div_(self._wire.size)
            self._parcels.forget()
        elif self._ahead:  # not yet withheld
            self._withheld = [moved.clone() for moved in self._movements()]
            self._ahead = False
        for group, stood in zip(self._params, self._stood, strict=True):
            _put(stood, group)

    def state(self) -> dict[str, Any]:
        """For a checkpoint: plain values and tensors."""
        return {
            "stood": plain([stood.flat for stood in self._stood]),
            "withheld": plain(self._withheld),
            "ahead": self._ahead,
            "outer": plain(self._outer_states),
            "parcels": self._parcels.state(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from the `state` of another run. Raises UsageError if its buckets were others."""
        mine = [stood.flat for stood in self._stood]
        for flat, kept in zip(mine, filled(mine, state["stood"]), strict=True):
            flat.copy_(kept)
        self._withheld = filled(mine, state["withheld"])
        self._ahead = state["ahead"]
        self._outer_states = filled(self._outer_states, state["outer"])
        self._parcels.load(state["parcels"])


def _bucket(group: Sequence[Tensor]) -> Bucket:
    return Bucket(torch.empty(room(group), dtype=torch.float32, device=group[0].device), group)


def _put(values: Bucket, group: Sequence[Tensor]) -> None:
    for param, view in zip(group, values.views, strict=True):
        param.copy_(view)
