"""Rules that judge contributions layer by layer, by how far steps on trusted samples lead."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from tweed.aggregate.base import Answer, Arrival, Gathered, Reason, TrustedSteps, Value, Verdict
from tweed.aggregate.tensor_ops import Row, as_given, rows_of
from tweed.aggregate.trusted import TrustedSamples, verdict
from tweed.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Measured(Gathered):
    """A state.

    Attributes:
      trusted: of each layer `[validators, numel of the layer]`, how far validators came;
        None: not asked yet.
      uses: contributions that were judged by it.
    """

    trusted: Sequence[Tensor] | None = None
    uses: int = 0


class Piece(NamedTuple):
    """A layer of a contribution that counts.

    Attributes:
      value: `[numel]`.
      absent: where it has no value; None: nowhere.
      factor: how much it counts beside others' of the same layer.
    """

    sender: int
    value: Tensor
    absent: Tensor | None
    factor: float


class ByLayers(TrustedSamples):
    """What rules share that measure each layer, a tensor of the model, by how far validators' steps lead.

    With several validators a sender is judged by the one with its number modulo theirs. A layer that was not
    sent counts for nothing, and one that nobody sent, or of which nothing is believed, stays as it is.
    """

    __slots__ = ()
    exchanges: ClassVar[frozenset[str]] = frozenset({"difference", "model"})
    exchanges_reason: ClassVar[str] = (
        "it measures by how far steps on trusted samples lead, and a gradient is no step. Exchange "
        '"difference" or "model", or take Zeno'
    )
    #: Why a layer counts.
    counts: ClassVar[Reason] = Reason.LIKE_STEPS
    steps: int
    lr: float
    validators: int
    every: int

    @property
    def measured_steps(self) -> int:
        return self.steps

    def factor(self, value: Tensor, trusted: Tensor) -> float | None:
        """How much a layer counts beside others' of the same, `[numel]` each; None: it does not."""
        raise NotImplementedError  # each rule has its own

    def start(self) -> Measured:
        return Measured()

    def handle(self, event: Arrival | Answer, state: Measured, now: float) -> Measured:
        """Puts an arrival in its sender's place, or takes what validators found."""
        if isinstance(event, Answer):
            return replace(state, trusted=event.value, uses=0)
        return state.plus(event)

    def poll(
        self, state: Measured, now: float
    ) -> tuple[Value | TrustedSteps | None, tuple[Verdict, ...], Any]:
        """The question for validators' steps, now and then; otherwise the average, zeros where nothing is
        believed."""
        if not state.arrivals:
            return None, (), state
        if state.trusted is None or state.uses >= self.every:
            return TrustedSteps(self.steps, self.lr, self.validators), (), state
        rows = rows_of(state.arrivals)
        sizes = [layer.shape[1] for layer in state.trusted]
        fitting = [row._replace(fits=row.fits and row.value.numel() == sum(sizes)) for row in rows]
        judged = [row for row in fitting if row.fits]
        update, weights = self._averaged(judged, state.trusted) if judged else (None, {})
        found = tuple(self._verdict(row, weights) for row in fitting)
        after = Measured(trusted=state.trusted, uses=state.uses + len(rows))
        return as_given(update, fitting, state.arrivals), found, after

    def _averaged(self, rows: Sequence[Row], trusted: Sequence[Tensor]) -> tuple[Tensor, dict[int, float]]:
        """The average, and with which weight each sender counts in the mean over values."""
        import torch

        weights, averages, at = {row.sender: 0.0 for row in rows}, [], 0
        for layer in trusted:
            size = layer.shape[1]
            taken = self._taken(rows, slice(at, at + size), layer)
            averages.append(_average(taken, rows[0].value.flatten()[at : at + size]))
            for piece in taken:
                weights[piece.sender] += piece.factor * size / len(taken) / rows[0].value.numel()
            at += size
        return torch.cat(averages).view(rows[0].value.shape), weights

    def _taken(self, rows: Sequence[Row], where: slice, layer: Tensor) -> list[Piece]:
        """What counts of a layer, of which `where` is the place, and validators' steps are `layer`."""
        found = []
        for row in rows:
            value = row.value.flatten()[where]
            absent = None if row.missing is None else row.missing.flatten()[where]
            if absent is not None and bool(absent.all()):
                continue
            factor = self.factor(value, layer[row.sender % self.validators].to(value.device))
            if factor is not None:
                found.append(Piece(row.sender, value, absent, factor))
        return found

    def _verdict(self, row: Row, weights: dict[int, float]) -> Verdict:
        if row.sender in weights and not weights[row.sender] and not bool(row.value.isfinite().all()):
            return Verdict(row.sender, 0.0, Reason.NOT_FINITE)
        return verdict(row, weights, self.counts, Reason.UNLIKE_STEPS)


def check_settings(rule: ByLayers, eta: float, others: bool, words: str) -> None:
    """Raises UsageError for a rule that cannot be; `words` are about its `others`."""
    if not (min(rule.steps, rule.validators, rule.every) >= 1 and 0 < rule.lr < math.inf):
        raise UsageError(f"{rule!r}: steps, validators and every are to be at least 1, and lr above 0")
    if not (math.isfinite(eta) and others):
        raise UsageError(f"{rule!r}: eta is to be finite{words and ', ' + words}")


def _average(pieces: Sequence[Piece], like: Tensor) -> Tensor:
    """Value by value the mean of those that are there, each times its factor."""
    total, count = like.new_zeros(like.shape), like.new_zeros(like.shape)
    for piece in pieces:
        there = total.new_ones(total.shape) if piece.absent is None else 1 - piece.absent.to(total)
        total.add_(piece.value * there, alpha=piece.factor)
        count.add_(there)
    return total.div_(count.clamp_(min=1))
