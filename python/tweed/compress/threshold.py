"""All values from a threshold on: one that a controller holds, or one that lives for many turns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tweed.compress.base import Spec, Turn
from tweed.compress.checks import check_density, count_of
from tweed.compress.controller import CAP, TINY, ThresholdController
from tweed.compress.entries import Entries, joined, parted
from tweed.compress.packet import HEADER_BYTES, Packet, Values
from tweed.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

#: Indices, ascending, and values.
Chosen = tuple["Tensor", "Tensor"]


@dataclass(frozen=True, slots=True)
class Thresholds:
    """State of `Threshold`, on the host.

    Args:
      taus: `[tensors]` float64, of each tensor; 0 sends all of it, or is not yet known.
      until: the step at which they are to be found anew.
      slopes, credits: as `taus`, see `controller.ThresholdController`; unused where thresholds live on.
    """

    taus: Tensor
    until: int
    slopes: Tensor
    credits: Tensor

    @property
    def controllers(self) -> list[ThresholdController]:
        """What the controller knows of each tensor."""
        columns = (self.taus.tolist(), self.slopes.tolist(), self.credits.tolist())
        return [ThresholdController(*row) for row in zip(*columns, strict=True)]


@dataclass(frozen=True, slots=True)
class Threshold:
    """Sends, of each tensor, the values of magnitude tau and more. A controller holds tau, so that a turn
    sends at most 1.2 times the share that was asked for, and on average that share; or tau is found once per
    `lifespan` turns, as published, and more or fewer values are sent in between.

    Args:
      density: share of values, above 0 and at most 1. Of a tensor that has less than one value to send per
        turn, one is sent every few turns.
      lifespan: turns that a threshold lives, as published; 0: a controller holds it.
      dense_below: of tensors with fewer values, all are sent.
      per_tensor: each tensor has a threshold; otherwise the whole buffer has one, and values of tensors with
        larger gradients are sent more often.
      bidirectional: the average goes back in the same form; what is left stays with the owner of the range.
        Otherwise it goes back exactly.

    Where entries would take more bytes than all values, all are sent.
    Raises: UsageError for other values.
    Cost: 8 bytes per value that is sent. One pass; and a selection among some `2 density` candidates, or,
      where a controller expected far more than there are, among all values: at its first turn, and when
      values have become much smaller. With `lifespan`, a selection among all values every so many turns.
    Source: DCT, arXiv 2010.08899, 2021, for fixed life spans.

    Example:
      >>> import torch
      >>> spec, codec = Spec(((1000,),)), Threshold(0.01)
      >>> packet, state = codec.encode(torch.arange(1000.0), codec.start(spec), Turn(spec))
      >>> packet.indices.tolist()
      [990, 991, 992, 993, 994, 995, 996, 997, 998, 999]
    """

    density: float
    lifespan: int = 0
    dense_below: int = 256
    per_tensor: bool = True
    bidirectional: bool = False

    unbiased = False
    sums = False

    def __post_init__(self) -> None:
        check_density("threshold", self.density)
        if self.lifespan < 0:
            raise UsageError(
                f"threshold: lifespan={self.lifespan!r} is to be 1 or more turns, or 0 for a controller"
            )

    @property
    def reply_codec(self) -> Threshold | None:
        return self if self.bidirectional else None

    def start(self, spec: Spec) -> Thresholds:
        """Thresholds are found at the first turn."""
        return _state([ThresholdController() for _ in self._sizes(spec)])

    def encode(
        self, value: Tensor, state: Thresholds, turn: Turn, error: Tensor | None = None
    ) -> tuple[Packet, Thresholds]:
        """Values that are sent are sent exactly."""
        sizes = self._sizes(turn.spec)
        if self.lifespan:
            parts, state = self._by_life_span(value, state, turn, error)
        else:
            parts, controllers = [], []
            for (mine, left), controller in zip(parted(value, error, sizes), state.controllers, strict=True):
                part, controller = self._held(mine, left, controller)
                parts.append(part)
                controllers.append(controller)
            state = _state(controllers)
        return _all_if_shorter(joined(parts, sizes), value, error), state

    def _held(
        self, value: Tensor, error: Tensor | None, controller: ThresholdController
    ) -> tuple[Chosen, ThresholdController]:
        """What is sent of one tensor, and what its controller makes of it."""
        from tweed.compress.native import sparse

        if self._dense(value.numel()):
            return sparse.threshold(value, 0.0, error), controller
        asked = self.density * value.numel()
        budget, found = controller.budget(asked), 0
        if not budget or not controller.tau:
            indices, values = _nonzero(sparse.top_k(value, budget, error))
        else:
            indices, values, found = sparse.largest_above(value, controller.tau, budget, error)
            if CAP * found < budget and controller.tau > TINY:
                indices, values = _found_anew(indices, values, value, budget, error)
        least = float(values.abs().min()) if len(values) else 0.0
        return (indices, values), controller.after(asked, budget, found, len(values), least)

    def _by_life_span(
        self, value: Tensor, state: Thresholds, turn: Turn, error: Tensor | None
    ) -> tuple[list[Chosen], Thresholds]:
        from tweed.compress.native import sparse

        if turn.step >= state.until:
            if error is not None:
                value.add_(error)
                error.zero_()
            state = _state(
                [ThresholdController(tau) for tau in self._searched(value, turn.spec)],
                turn.step + self.lifespan,
            )
        tensors = zip(parted(value, error, self._sizes(turn.spec)), state.taus.tolist(), strict=True)
        return [sparse.threshold(mine, tau, left) for (mine, left), tau in tensors], state

    def _searched(self, value: Tensor, spec: Spec) -> list[float]:
        from tweed.compress.native import sparse

        return [
            0.0
            if self._dense(len(mine))
            else max(TINY, sparse.kth_magnitude(mine, count_of(self.density, len(mine))))
            for mine, _ in parted(value, None, self._sizes(spec))
        ]

    def _dense(self, size: int) -> bool:
        return size < self.dense_below or self.density == 1 or not size

    def error_bound(self, spec: Spec) -> float:
        """With a life span one: all may have fallen below; at a turn that finds a threshold, and with a
        controller, all but the share that is sent for certain."""
        if self.lifespan > 1 and self.density < 1:
            return 1.0
        counts = [(size if self._dense(size) else self._least(size), size) for size in self._sizes(spec)]
        return 1 - min((count / size for count, size in counts if size), default=1.0)

    def _least(self, size: int) -> int:
        """How many values of a tensor are sent at least, if so many are not zero."""
        return count_of(self.density, size) if self.lifespan else math.ceil(int(self.density * size) / CAP)

    def packet_bytes(self, spec: Spec) -> float:
        """Eight per value that is sent on average; with a life span, at a turn that finds a threshold."""
        count = sum(count for count, _ in self.counts(spec))
        return float(HEADER_BYTES + min(8 * count, 4 * spec.numel))

    def counts(self, spec: Spec) -> list[tuple[int, int]]:
        """How many values are sent of each tensor, of how many; see `packet_bytes`."""
        share = count_of if self.lifespan else lambda density, size: round(density * size)
        sizes = self._sizes(spec)
        return [(size if self._dense(size) else share(self.density, size), size) for size in sizes]

    def _sizes(self, spec: Spec) -> Sequence[int]:
        """The sizes of the parts that have a threshold each."""
        return spec.sizes if self.per_tensor else (spec.numel,)


def _state(controllers: Sequence[ThresholdController], until: int = 0) -> Thresholds:
    import torch

    taus, slopes, credits = (
        torch.tensor([getattr(controller, name) for controller in controllers], dtype=torch.float64)
        for name in ("tau", "slope", "credit")
    )
    return Thresholds(taus, until, slopes, credits)


def _found_anew(indices: Tensor, values: Tensor, value: Tensor, budget: int, error: Tensor | None) -> Chosen:
    """The `budget` largest of all, after a threshold let too few candidates through."""
    from tweed.compress.native import sparse

    if error is None:
        return _nonzero(sparse.top_k(value, budget))
    sparse.scatter_add(error, indices, values)
    chosen = sparse.top_k(error, budget)
    error[chosen[0].long()] = 0
    return _nonzero(chosen)


def _nonzero(chosen: Chosen) -> Chosen:
    indices, values = chosen
    some = values != 0
    return (indices, values) if bool(some.all()) else (indices[some], values[some])


def _all_if_shorter(entries: Entries, value: Tensor, error: Tensor | None) -> Packet:
    if 2 * len(entries.indices) < entries.numel:
        return entries
    if error is None:
        return Values(value, entries.numel)
    entries.add_to(error)
    whole = Values(error.clone(), entries.numel)
    error.zero_()
    return whole
