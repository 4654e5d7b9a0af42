"""Exchange of how far parameters have moved, compressed, between optimizer steps."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tweed.cadence import Outer, Ready
from tweed.compress import Memory, Update
from tweed.exchange.autotuner import make_buffers
from tweed.exchange.bucket import Bucket, assign, item, room
from tweed.exchange.cadence_driver import CadenceDriver
from tweed.exchange.checkpoint import filled, plain
from tweed.exchange.communicator import Communicator
from tweed.exchange.finite import OwnFlags
from tweed.exchange.flagged import exchange_if_finite
from tweed.exchange.model_averaging import BetweenSteps
from tweed.exchange.pending import wait_for
from tweed.exchange.untrained import Untrained
from tweed.exchange.verdicts import Verdict, check_verdicts

log = logging.getLogger("tweed")


class MovementExchange(BetweenSteps):
    """Exchanges `parameter - reference`: the reference is where this rank stood after the last exchange.

    Args:
      params: those that are trained, by name: always as many, of the same shapes.
      rest: of the model.
      comm: the group.
      cadence: when to exchange, and whether this rank contributes then.
      bucket_bytes: size of a full bucket.
      memory: the strategy's.
      outer: what becomes of the average movement; None: it is what the reference moves by.

    Cost: memory for the references, the values and an average: three models in float32, beside what memory
      and outer optimizer keep; while it exchanges, a copy of what the memory keeps.
    """

    def __init__(
        self,
        params: Mapping[str, Tensor],
        rest: Untrained,
        comm: Communicator,
        cadence: CadenceDriver,
        bucket_bytes: int,
        memory: Memory[Any],
        outer: Outer[Any] | None,
    ) -> None:
        super().__init__(rest, comm, cadence, replicas_diverge=memory.replicas_diverge)
        self._params = params
        tensors = [param.detach() for param in params.values()]
        self._members = members = assign([item(tensor) for tensor in tensors], bucket_bytes)
        names = list(params)
        self._names = [[names[index] for index in bucket] for bucket in members]
        self._movements = [_bucket(group) for group in self._groups()]
        self._references = [_bucket(group) for group in self._groups()]
        self._withheld: list[Tensor | None] = [None] * len(members)
        # How far parameters stand off their references, where they do.
        self._offsets: list[Tensor | None] = [None] * len(members)
        self._values = make_buffers(memory, self._groups(), comm)
        self._outer = outer
        self._outer_states = [outer.start(one.flat) if outer else None for one in self._references]
        for group, reference in zip(self._groups(), self._references, strict=True):
            for param, view in zip(group, reference.views, strict=True):
                view.copy_(param)

    def _groups(self) -> list[list[Tensor]]:
        """Per bucket the parameters, as they are now."""
        return [[self._params[name].detach() for name in names] for names in self._names]

    def after_step(self, norm: float | None) -> None:
        """A cadence that goes by the norm of what there is to send learns it first."""
        if self._cadence.needs_norm:
            self._cadence.handle(Ready(self._values.pending_norm(self._measure())))
        super().after_step(norm)

    def exchange(self) -> None:
        """Exchanges, and puts parameters where the memory says. Waits for it.

        Raises: NonFinite, on all ranks, if a value of one is not finite, and the aggregate cannot do without
          that rank; UsageError, on all ranks, if the model of one is another one than it was at `attach`.
          Nothing was exchanged or changed.
        """
        own = self._rest.look()
        values = [] if own else self._measure()
        given = [[True] * len(names) for names in self._names]
        flags, updates = wait_for(
            exchange_if_finite(
                self._values,
                OwnFlags.of(self._movements, given, Verdict.REFUSED if own else Verdict.GO_ON),
                values,
                lambda values: self._cadence.silent,
                lambda flags: check_verdicts(flags.said, self._comm, self._movements[0].flat.device, own),
                carried=self._values.carry_flags,
            )
        )
        error = flags.error(self._names)
        if updates is None:
            assert error is not None  # that is why
            raise error
        if error is not None:
            log.warning("left out of this exchange: %s", flags.words(self._names))
        self._offsets = [update.offset for update in updates]
        for index, (update, group) in enumerate(zip(updates, self._groups(), strict=True)):
            self._apply(index, update, group)
        self._rest.average(broken=flags.broken)
        self._comm.end_exchange()

    @torch.no_grad()
    def _measure(self) -> list[Tensor]:
        """How far parameters have moved, per bucket."""
        every = zip(self._groups(), self._movements, self._references, self._withheld, strict=True)
        for group, movement, reference, withheld in every:
            for param, view in zip(group, movement.views, strict=True):
                view.copy_(param)
            movement.flat.sub_(reference.flat)
            if withheld is not None:
                movement.flat.add_(withheld)
        return [movement.flat for movement in self._movements]

    @torch.no_grad()
    def _apply(self, index: int, update: Update, group: Sequence[Tensor]) -> None:
        reference, delta = self._references[index], update.delta
        if self._outer is not None:
            delta = self._outer.advance(delta, self._outer_states[index])
        reference.flat.add_(delta)
        self._withheld[index] = None
        target = (
            reference if update.offset is None else Bucket(reference.flat + update.offset, reference.views)
        )
        _copy_views(target, group)

    def average(self, tensors: list[Tensor]) -> list[Tensor]:
        """Where parameters stand off their references, these are equal on all ranks."""
        if not self._is_offset:
            return super().average(tensors)
        places = zip(self._members, self._references, strict=True)
        by_index = {
            index: view for members, one in places for index, view in zip(members, one.views, strict=True)
        }
        return [*(by_index[index] for index in range(len(by_index))), *tensors[len(by_index) :]]

    @torch.no_grad()
    def synchronize(self) -> None:
        self._take_moved_by_hand()
        if self._replicas_diverge:
            for reference in self._references:
                self._comm.mean(reference.flat)
            self._values.forget()
        # What offsets held is no longer in the model, and goes with the next movement.
        self._withheld = [
            withheld if offset is None else offset.clone()
            for withheld, offset in zip(self._withheld, self._offsets, strict=True)
        ]
        self._offsets = [None] * len(self._members)
        for group, reference in zip(self._groups(), self._references, strict=True):
            _copy_views(reference, group)
        self._rest.average()

    def _take_moved_by_hand(self) -> None:
        """References move by how far a loop has moved parameters since the last exchange: by the mean over
        ranks, which needs no exchange where it is the same at all."""
        moved = [movement.flat for movement in self._movements] if self._rest.look() else self._measure()
        for flat, offset, withheld in zip(moved, self._offsets, self._withheld, strict=True):
            for part in (offset, withheld):
                if part is not None:
                    flat.sub_(part)
        equal = self._rest.compare(moved, moved[0].device)
        for flat, reference, same in zip(moved, self._references, equal, strict=True):
            if not (same or self._replicas_diverge):
                self._comm.mean(flat)
            reference.flat.add_(flat)

    @property
    def _is_offset(self) -> bool:
        """Do parameters stand off their references?"""
        return any(offset is not None for offset in self._offsets)

    def state(self) -> dict[str, Any]:
        return {
            "references": plain([reference.flat for reference in self._references]),
            "withheld": plain(self._withheld),
            "offsets": plain(self._offsets),
            "outer": plain(self._outer_states),
            "buffers": self._values.state(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        super().load(state)
        mine = [reference.flat for reference in self._references]
        for flat, kept in zip(mine, filled(mine, state["references"]), strict=True):
            flat.copy_(kept)
        self._withheld = filled(mine, state["withheld"])
        self._offsets = filled(mine, state["offsets"])
        self._outer_states = filled(self._outer_states, state["outer"])
        self._values.load(state["buffers"])


def _bucket(group: Sequence[Tensor]) -> Bucket:
    return Bucket(torch.empty(room(group), dtype=torch.float32, device=group[0].device), group)


def _copy_views(values: Bucket, group: Sequence[Tensor]) -> None:
    for param, view in zip(group, values.views, strict=True):
        param.copy_(view)
