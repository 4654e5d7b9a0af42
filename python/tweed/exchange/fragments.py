"""A part of a model that is exchanged by itself while its rank takes further steps. Pure: no group.

Of each fragment the ranks have a common reference point. A rank's values stand off it by two things:

    values = reference + residual + what this rank has moved since it sent last

where the residual is what its memory still has to send. When an exchange begins, all but the residual is
sent. Values go on meanwhile. When the update is known, the reference moves by it; values move by the update,
less what was really sent. So only what a packet held is replaced, and what it left out stays in this rank's
values until it is sent. The mean of all ranks' values follows the path without compression.

    idle --take--> sent --put--> known --move--> idle
                    '--give_back--> idle           (nothing was exchanged)

Without a residual all counts as sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tweed.cadence import Outer
from tweed.compress import Memory, Update
from tweed.errors import UsageError
from tweed.exchange.bucket import Bucket, assign, item, room
from tweed.exchange.checkpoint import filled, plain
from tweed.exchange.transfers import BufferState

#: Values that were added up to others in float32 are off by no more than this share of them.
_ROUNDING = 2**-20


class Slice(NamedTuple):
    """Rows `begin` to `end` of the parameter `name`, along its first dimension."""

    name: str
    begin: int
    end: int


def cut(shapes: Mapping[str, Sequence[int]], fragments: int) -> list[list[Slice]]:
    """Cuts parameters of these `shapes`, by name, into parts of nearly as many values, layer by layer.

    A parameter is cut between rows where the end of a part lies in it, so that a layer may be larger than a
    part. One without dimensions is one row.

    Raises: UsageError if a part would be empty, as rows are larger than parts.
    Example:
      >>> cut({"weight": (4, 10), "bias": (4,)}, 2)
      [[Slice(name='weight', begin=0, end=2)], [Slice(name='weight', begin=2, end=4), Slice(name='bias', ...
    """
    sizes = {name: torch.Size(shape).numel() for name, shape in shapes.items()}
    ends = [sum(sizes.values()) * part / fragments for part in range(fragments + 1)]
    found: list[list[Slice]] = [[] for _ in range(fragments)]
    before = 0
    for name, shape in shapes.items():
        rows = shape[0] if shape else 1
        per_row = sizes[name] / max(rows, 1)
        cuts = [_row(end - before, per_row, rows) for end in ends]
        cuts[-1] = rows
        for part, (begin, end) in enumerate(pairwise(cuts)):
            if end > begin:
                found[part].append(Slice(name, begin, end))
        before += sizes[name]
    if not all(found):
        raise UsageError(
            f"the model, of {before} values, cannot be cut into fragments={fragments} between the rows of "
            "its parameters, as one row is larger than a fragment: take fewer"
        )
    return found


def _row(values: float, per_row: float, rows: int) -> int:
    """The row nearest to where so many `values` end."""
    return min(rows, max(0, round(values / per_row))) if per_row else 0


@dataclass(eq=False, slots=True)
class Fragment:
    """See the module.

    Args:
      params: all of the model, by name, as they are now.
      slices: of them, those in this fragment.
      bucket_bytes: size of a full bucket; a bucket goes through the memory as one buffer.
      memory: the strategy's.
      outer: what becomes of the average movement; None: it is what the reference moves by.

    Attributes:
      names: per bucket those of the tensors in it.
      values: what is sent, or was: scratch memory then.

    Cost: memory for three copies of the fragment in float32.
    """

    params: Mapping[str, Tensor]
    slices: Sequence[Slice]
    bucket_bytes: int
    memory: Memory[Any]
    outer: Outer[Any] | None
    names: list[list[str]] = field(init=False)
    values: list[Bucket] = field(init=False)
    _members: list[list[int]] = field(init=False)
    _references: list[Bucket] = field(init=False)
    _shifts: list[Bucket] = field(init=False)
    _outer_states: list[Any] = field(init=False)
    _stands_off: bool = field(default=False, init=False)
    _is_known: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        items = [item(self._rows(one, self.params)) for one in self.slices]
        self._members = assign(items, self.bucket_bytes)
        self.names = [[self.slices[index].name for index in members] for members in self._members]
        groups = self.groups()
        self.values, self._references, self._shifts = ([_bucket(one) for one in groups] for _ in range(3))
        self._outer_states = [self.outer.start(one.flat) if self.outer else None for one in self._references]
        self.put_references(self.params)

    @staticmethod
    def _rows(one: Slice, params: Mapping[str, Tensor]) -> Tensor:
        param = params[one.name].detach()
        return param[one.begin : one.end] if param.dim() else param

    def groups(self, params: Mapping[str, Tensor] | None = None) -> list[list[Tensor]]:
        """Per bucket the tensors, as views of `params`; None: of the model's."""
        params = self.params if params is None else params
        return [[self._rows(self.slices[index], params) for index in members] for members in self._members]

    def put_references(self, params: Mapping[str, Tensor]) -> None:
        """The reference becomes what `params` have."""
        for reference, group in zip(self._references, self.groups(params), strict=True):
            for view, tensor in zip(reference.views, group, strict=True):
                view.copy_(tensor)

    def _residuals(self, buffers: Sequence[BufferState]) -> list[Tensor | None]:
        return [self.memory.residual(buffer.state) for buffer in buffers]

    @torch.no_grad()
    def take(self, buffers: Sequence[BufferState]) -> list[Tensor]:
        """Begins an exchange. `buffers`: what the memory keeps. Returns: per bucket `[numel]`, what is to be
        sent."""
        parts = zip(
            self.values, self._shifts, self._references, self._residuals(buffers), self.groups(), strict=True
        )
        for value, shift, reference, residual, group in parts:
            for view, tensor in zip(shift.views, group, strict=True):
                view.copy_(tensor)
            shift.flat.sub_(reference.flat)
            value.flat.copy_(shift.flat)
            if self._stands_off and residual is not None:
                value.flat.sub_(residual)
        return [value.flat for value in self.values]

    @torch.no_grad()
    def put(self, updates: Sequence[Update], buffers: Sequence[BufferState]) -> None:
        """The exchange has ended: the reference moves, and how far values are to move is known."""
        parts = zip(
            updates, self._shifts, self._references, self._residuals(buffers), self._outer_states, strict=True
        )
        for update, shift, reference, residual, state in parts:
            delta = update.delta if self.outer is None else self.outer.advance(update.delta, state)
            reference.flat.add_(delta)
            torch.sub(delta, shift.flat, out=shift.flat)
            if residual is not None:
                shift.flat.add_(residual)
        self._is_known = True

    @torch.no_grad()
    def move(self) -> None:
        """Values move by what came of the exchange."""
        self.shift(self.params)
        self._stands_off, self._is_known = True, False

    @torch.no_grad()
    def shift(self, params: Mapping[str, Tensor]) -> None:
        """Moves what `params` have of this fragment as `move` will, if that is known already."""
        if self._is_known:
            for shift, group in zip(self._shifts, self.groups(params), strict=True):
                for view, tensor in zip(shift.views, group, strict=True):
                    tensor.add_(view)

    @torch.no_grad()
    def moved_by_hand(self, buffers: Sequence[BufferState]) -> list[Tensor]:
        """How far values of an idle fragment have moved since the last exchange, per bucket, where that is
        more than rounding."""
        moved = self.take(buffers)
        for value, shift, reference in zip(moved, self._shifts, self._references, strict=True):
            rounding = _ROUNDING * (reference.flat.abs() + shift.flat.abs())
            value.masked_fill_(value.abs() <= rounding, 0.0)
        return moved

    @torch.no_grad()
    def move_references(self, by: Sequence[Tensor]) -> None:
        """The reference moves by so much, per bucket."""
        for reference, delta in zip(self._references, by, strict=True):
            reference.flat.add_(delta)

    @torch.no_grad()
    def join(self) -> None:
        """Values become those of the reference point, which all ranks have. The residual is kept."""
        for reference, group in zip(self._references, self.groups(), strict=True):
            for view, tensor in zip(reference.views, group, strict=True):
                tensor.copy_(view)
        self._stands_off = False

    def state(self) -> dict[str, Any]:
        """For a checkpoint: plain values and tensors. What was sent must be known."""
        return {
            "references": plain([one.flat for one in self._references]),
            "shifts": plain([one.flat for one in self._shifts]) if self._is_known else None,
            "outer": plain(self._outer_states),
            "stands_off": self._stands_off,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from the `state` of another run. Raises UsageError if its buckets were others."""
        self._is_known = state["shifts"] is not None
        for mine, kept in ((self._references, state["references"]), (self._shifts, state["shifts"])):
            flats = [one.flat for one in mine]
            for flat, value in zip(flats, filled(flats, kept) if kept is not None else flats, strict=True):
                flat.copy_(value)
        self._outer_states = filled(self._outer_states, state["outer"])
        self._stands_off = state["stands_off"]


def _bucket(group: Sequence[Tensor]) -> Bucket:
    return Bucket(torch.empty(room(group), dtype=torch.float32, device=group[0].device), group)
