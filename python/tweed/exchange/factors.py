"""Gradients of matrices, exchanged as their factors where that is less: `exchange="factors"`.

The sum over ranks of `G^T X` is the product of all ranks' factors, one below the other. So an all-gather of
factors gives each rank the sum that an all-reduce of the matrix would, to rounding. Ranks agree on the form
of each weight by an all-reduce of a few integers, in which the greatest counts.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from tweed.errors import UsageError
from tweed.exchange.bucket import GradientBucket
from tweed.exchange.cadence_driver import CadenceDriver
from tweed.exchange.communicator import Communicator
from tweed.exchange.factor_record import DTYPES, FactorRecord, Factors, pays
from tweed.exchange.gradients import Groups, SummedGradients, shared_buckets
from tweed.exchange.verdicts import greatest, other_steps, refusal

_NOT_ITS_FACTORS = (
    "the gradient of %r is not the sum over uses of its torch.nn.Linear, so the matrix is exchanged and not "
    "its factors. That is right, and costs bytes: the weight is used elsewhere too, a hook or the loop has "
    "changed the gradient, or torch.compile runs the layer"
)
_note_once = functools.cache(logging.getLogger("tweed").warning)
_NONE, _GIVEN, _WHOLE = 0, 1, 1 << 40  # of a weight: no gradient; so many rows beyond that; not by factors
_UNSAID = -(1 << 40)  # less than all that a rank may say


class _Form(NamedTuple):
    """In which a weight goes by factors: rows that each rank sends, and their dtype."""

    rows: int
    dtype: torch.dtype


class FactoredGradients(SummedGradients):
    """Weights with a record go by an all-gather of their factors where that is less, all else by all-reduces.

    Buckets of all else begin while the backward pass runs. When it has ended, ranks agree on the form of each
    weight: factors, if all ranks with a gradient have its factors, in one dtype, and the most rows of a rank
    pay. Each rank then forms the product of all ranks' factors by the same call on the same values. So models
    stay equal bit by bit where hosts round a matrix product alike, as with PowerSGD.

    Args:
      groups: per bucket the parameters by name.
      comm: the group.
      cadence: when to exchange.
      record: of which factors gradients are the products.

    Cost: one all-reduce of 24 bytes per weight; then one all-gather per dtype, see `pays`; of each matrix the
      product of `P` times as many rows as a rank has.
    Source: sufficient factors, Xie et al., UAI 2016 (arXiv 1511.08486).
    """

    def __init__(
        self, groups: Groups, comm: Communicator, cadence: CadenceDriver, record: FactorRecord
    ) -> None:
        super().__init__(shared_buckets(_weights_apart(groups, record.names), comm), comm, cadence)
        self._record = record
        self._weights = [one for one in self.buckets if one.names[0] in record.names]
        self._rest = [one for one in self.buckets if one.names[0] not in record.names]
        self._factors: dict[str, Factors | None] = {}

    def settle(self, name: str, param: Tensor) -> None:
        if name not in self._record.names:
            return
        if not self._record.settle(param, param.grad):
            _note_once(_NOT_ITS_FACTORS, name)
        self._factors[name] = self._record.of(param)

    def start(self, gradients: GradientBucket) -> None:
        if gradients.names[0] not in self._record.names:
            super().start(gradients)

    def refuse(self, why: UsageError) -> None:
        for gradients in self._rest:
            gradients.bucket.flat.zero_()
            super().start(gradients)
        self._agree(why)

    def finish(self) -> list[Sequence[bool]]:
        forms = dict(zip((one.names[0] for one in self._weights), self._agree(None), strict=True))
        for gradients in self._weights:
            if forms[gradients.names[0]] is None:
                super().start(gradients)
        for dtype in DTYPES:  # the same order on all ranks
            of_dtype = [(one, form) for one in self._weights if (form := forms[one.names[0]])]
            self._multiply([pair for pair in of_dtype if pair[1].dtype == dtype], dtype)
        self._factors.clear()
        self._record.clear()
        return [
            [True] if forms.get(one.names[0]) is not None else self._contributed(one) for one in self.buckets
        ]

    def _contributed(self, gradients: GradientBucket) -> Sequence[bool]:
        """Waits for a sum. Per view whether any rank contributed; empty if this one has all."""
        self._wait(gradients)
        marks = [] if gradients.full else gradients.bucket.marks[:-1].tolist()
        return [mark != 0 for mark in marks]

    def _agree(self, why: UsageError | None) -> list[_Form | None]:
        """In which form each weight goes; None: as a sum.

        Raises: UsageError, on all ranks, if one cannot take part, or has taken other steps.
        """
        device = self.buckets[0].bucket.flat.device
        said = [int(why is not None), self.steps_taken, -self.steps_taken]
        said += [word for one in self._weights for word in self._words(one)]
        refused, steps, negated, *words = greatest(self._comm, device, said)
        if refused or steps != -negated:
            for gradients in self._rest:
                self._wait(gradients)
            raise (
                refusal(self._comm, device, why)
                if refused
                else other_steps(self._comm, device, self.steps_taken)
            )
        by_weight = zip(self._weights, words[::3], words[1::3], words[2::3], strict=True)
        return [self._agreed(gradients, *of_all) for gradients, *of_all in by_weight]

    def _words(self, gradients: GradientBucket) -> tuple[int, int, int]:
        """What this rank says of a weight: its rows, and the dtype of its factors as a number and as the
        opposite number. The greatest of both are opposite if all ranks have the same."""
        if not gradients.full:
            return _NONE, _UNSAID, _UNSAID
        factors = self._factors.get(gradients.names[0])
        if factors is None:
            return _WHOLE, _UNSAID, _UNSAID
        dtype = DTYPES.index(factors.inputs.dtype)
        return _GIVEN + factors.rows, dtype, -dtype

    def _agreed(self, gradients: GradientBucket, said: int, dtype: int, negated: int) -> _Form | None:
        if said in (_NONE, _WHOLE) or dtype != -negated:
            return None
        form, view = _Form(said - _GIVEN, DTYPES[dtype]), gradients.bucket.views[0]
        ranks, sizes = self._comm.size, (form.dtype.itemsize, view.element_size())
        return form if pays(form.rows, view.shape, ranks, *sizes) else None

    def _multiply(self, weights: Sequence[tuple[GradientBucket, _Form]], dtype: torch.dtype) -> None:
        """Gathers factors, of `dtype`, and makes views the averages over ranks."""
        shapes = [(form.rows, *one.bucket.views[0].shape) for one, form in weights]
        if not any(rows for rows, *_ in shapes):
            for one, _ in weights:
                one.bucket.views[0].zero_()
            return
        like = weights[0][0].bucket.flat.new_empty(0, dtype=dtype)
        mine = like.new_zeros(sum(rows * (outputs + inputs) for rows, outputs, inputs in shapes))
        for (one, _), factors in zip(weights, _laid_out(mine[None], shapes), strict=True):
            own = self._factors.get(one.names[0])
            for place, values in zip(factors, own or (), strict=own is not None):
                place[0, : len(values)] = values
        gathered = self._gather(mine)
        for (one, _), (outputs, inputs) in zip(weights, _laid_out(gathered, shapes), strict=True):
            view = one.bucket.views[0]
            scaled = outputs.flatten(0, 1).to(view.dtype) * self.prescale
            torch.mm(scaled.t(), inputs.flatten(0, 1).to(view.dtype), out=view)

    def _gather(self, mine: Tensor) -> Tensor:
        """What each rank has, `[ranks, numel]`; all have as much."""
        gathered = mine.new_empty(self._comm.size, len(mine))
        self._comm.count(gathered, crossings=1)
        as_bytes = gathered.view(torch.uint8).flatten(), mine.view(torch.uint8)  # backends know few dtypes
        work = dist.all_gather_into_tensor(*as_bytes, group=self._comm.group, async_op=True)
        self._comm.wait(self._comm.work(work))
        return gathered


def _weights_apart(groups: Groups, names: Set[str]) -> list[Mapping[str, Tensor]]:
    """Gives each of the parameters `names` a group of its own; order and the other groups stay."""
    apart: list[Mapping[str, Tensor]] = []
    for group in groups:
        rest = {name: tensor for name, tensor in group.items() if name not in names}
        apart += [rest] if rest else []
        apart += [{name: tensor} for name, tensor in group.items() if name in names]
    return apart


def _laid_out(flat: Tensor, shapes: Sequence[tuple[int, int, int]]) -> list[Factors]:
    """Views of `flat`, `[ranks, numel]`, as factors of one weight after the other, `[ranks, rows, width]`.

    Args:
      shapes: of each weight rows, outputs and inputs.
    """
    sizes = [rows * width for rows, *widths in shapes for width in widths]
    parts = iter(torch.split(flat, sizes, dim=1))
    return [
        Factors(*(next(parts).view(len(flat), rows, width) for width in (outputs, inputs)))
        for rows, outputs, inputs in shapes
    ]
