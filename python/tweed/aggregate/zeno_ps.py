"""Contributions judged layer by layer, by how far steps on trusted samples lead."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from tweed.aggregate.base import Answer, Arrival, Gathered, Reason, TrustedSteps, Value, Verdict
from tweed.aggregate.rows import Row, as_given, rows_of
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


@dataclass(frozen=True, slots=True)
class ZenoPS(TrustedSamples):
    """Averages, for each layer by itself, the contributions `u` for which

        <u, v> > eta * |v|^2    and    |u|^2 < (1 + rho) * |v|^2

    where `v` is how far a validator's steps on trusted samples lead. With several validators a sender is
    judged by the one with its number modulo theirs. A layer is a tensor of the model. One that was not sent
    counts for nothing, and one that nobody sent, or of which nothing is believed, stays as it is.

    Args:
      steps: that a validator takes: as many as workers take between exchanges.
      lr: of these steps: that of workers' optimizers.
      validators: how many there are, each with samples of its own.
      eta, rho: see above.
      every: validators take their steps anew after so many contributions.

    Raises: UsageError for settings that cannot be.
    Cost: `validators * steps` backward passes over a batch of trusted samples per `every` contributions, and
      two inner products per contribution.
    Source: ZenoPS, Algorithms 15(7):233, 2022, as its code does it for training in step.
    """

    steps: int = 8
    lr: float = 0.1
    validators: int = 1
    eta: float = -1e-3
    rho: float = 0.6
    every: int = 1
    exchanges: ClassVar[frozenset[str]] = frozenset({"difference", "model"})
    reason: ClassVar[str] = (
        "it measures by how far steps on trusted samples lead, and a gradient is no step. Exchange "
        '"difference" or "model", or take Zeno'
    )

    def __post_init__(self) -> None:
        fine = 0 < self.lr < math.inf and math.isfinite(self.eta) and -1 < self.rho < math.inf
        if not (min(self.steps, self.validators, self.every) >= 1 and fine):
            raise UsageError(
                f"{self!r}: steps, validators and every are to be at least 1, lr above 0, eta finite, and "
                "rho above -1"
            )

    def start(self) -> Measured:
        """Nothing has arrived."""
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
        update, weights = self._averaged(judged, state.trusted, sizes)
        found = tuple(_verdict(row, weights) for row in fitting)
        after = Measured(trusted=state.trusted, uses=state.uses + len(rows))
        if update is not None:
            update = update.view(judged[0].value.shape)
        return as_given(update, fitting, state.arrivals), found, after

    def _averaged(
        self, rows: Sequence[Row], trusted: Sequence[Tensor], sizes: list[int]
    ) -> tuple[Tensor | None, dict[int, float]]:
        """The average, and with which weight each sender counts in the mean over values."""
        import torch

        weights = {row.sender: 0.0 for row in rows}
        if not rows:
            return None, weights
        by_row = [torch.split(row.value.flatten(), sizes) for row in rows]
        absent = [None if row.missing is None else torch.split(row.missing.flatten(), sizes) for row in rows]
        averages = []
        for at, layer in enumerate(trusted):
            sent = [
                (row.sender, pieces[at], None if masks is None else masks[at])
                for row, pieces, masks in zip(rows, by_row, absent, strict=True)
                if masks is None or not bool(masks[at].all())
            ]
            taken = [one for one in sent if self._believes(one[1], layer[one[0] % self.validators])]
            averages.append(_average([(value, mask) for _, value, mask in taken], by_row[0][at]))
            for sender, _, _ in taken:
                weights[sender] += layer.shape[1] / len(taken) / max(1, sum(sizes))
        return torch.cat(averages), weights

    def _believes(self, value: Tensor, trusted: Tensor) -> bool:
        """Whether a layer passes; not one that is not finite, and none where the validator's is not, or is
        zero."""
        mine, theirs = value.double(), trusted.double().to(value.device)
        squared = float(theirs.square().sum())
        near = float(mine.square().sum()) < (1 + self.rho) * squared < math.inf
        return near and float(mine @ theirs) > self.eta * squared


def _average(pieces: Sequence[tuple[Tensor, Tensor | None]], like: Tensor) -> Tensor:
    """Value by value the mean of those that are there."""
    total, count = like.new_zeros(like.shape), like.new_zeros(like.shape)
    for value, mask in pieces:
        there = total.new_ones(total.shape) if mask is None else 1 - mask.to(total)
        total.add_(value * there)
        count.add_(there)
    return total.div_(count.clamp_(min=1))


def _verdict(row: Row, weights: dict[int, float]) -> Verdict:
    if row.sender in weights and not weights[row.sender] and not bool(row.value.isfinite().all()):
        return Verdict(row.sender, 0.0, Reason.NOT_FINITE)
    return verdict(row, weights, Reason.LIKE_STEPS, Reason.UNLIKE_STEPS)
