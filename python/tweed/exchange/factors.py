"""Gradients of linear layers as their factors: what is sent is less, and the sum is the same.

A linear layer's gradient over a batch is `errors^T inputs`, `[out, in]`, of the layer's inputs `[rows, in]`
and the gradients of its outputs `[rows, out]`. Where there are few rows, these weigh less than the product.
So each rank sends both to all, and all form the sum of the products.

    at the end of a backward pass, of each linear weight: the rows of its factors on each rank
        0     it has no gradient here
        -1    its gradient is not what factors say: used outside its module, cleared, too many rows
    factors     nobody says -1, and ranks * most rows * (in + out) < 2 * in * out
    dense       all others: an all-reduce, as of biases and convolutions while the backward pass still runs

What a rank receives: `(ranks - 1) * most * (in + out)` values by an all-gather, where a ring of an all-reduce
takes `2 * (ranks - 1) / ranks * in * out`; all know the rows of all, and so decide alike.

Whether factors give this rank's gradient is looked at each time, by the product with a random vector. So
whatever else adds to a gradient makes it dense, and not wrong.

Every rank forms the sum by itself. On processors of one kind it has the same bits; others round otherwise,
and their models drift apart by that: there, exchange gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from tweed.errors import UsageError
from tweed.exchange.bucket import GradientBucket
from tweed.exchange.cadence_driver import CadenceDriver
from tweed.exchange.communicator import Communicator
from tweed.exchange.gradients import Groups, SummedGradients, shared_buckets
from tweed.exchange.verdicts import other_steps, refusal

#: Relative differences that rounding makes: of float32 and float64, and of 16 bits.
_ROUNDING, _ROUNDING_16 = 1e-4, 0.05
_ABSENT, _DENSE = 0, -1


class Factors(NamedTuple):
    """A linear layer's inputs `[rows, in]` and the gradients of its outputs `[rows, out]`."""

    inputs: Tensor
    errors: Tensor


class Captured(Protocol):
    """Holds what backward passes have given of linear weights since the last exchange."""

    @property
    def names(self) -> Sequence[str]:
        """Weights of linear layers."""
        ...

    def take(self, name: str) -> Factors | None:
        """Factors of a weight, all rows side by side; None: it has none, or too many. They are forgotten."""
        ...


def pays(ranks: int, rows: int, inputs: int, outputs: int) -> bool:
    """Whether factors of at most so many rows per rank are fewer values than an all-reduce moves.

    Example:
      >>> [rows for rows in (63, 64) if pays(4, rows, 256, 256)]  # rows * ranks < 256
      [63]
    """
    return ranks * rows * (inputs + outputs) < 2 * inputs * outputs


class FactoredGradients(SummedGradients):
    """Weights of linear layers go as factors where that is less, all else as `SummedGradients`.

    Args:
      groups: per bucket the parameters by name.
      captured: what gives factors.

    Cost: beside what is sent, an all-gather of 8 bytes per linear weight, after the backward pass; a pass
      over each such gradient; the product of all ranks' factors. Inputs of linear layers are held until then.
    """

    def __init__(
        self, groups: Groups, comm: Communicator, cadence: CadenceDriver, captured: Captured
    ) -> None:
        linear = {*captured.names}
        rest = [{name: one for name, one in group.items() if name not in linear} for group in groups]
        alone = [{name: one} for group in groups for name, one in group.items() if name in linear]
        dense = shared_buckets([group for group in rest if group], comm)
        self._weights = shared_buckets(alone, comm)
        super().__init__([*dense, *self._weights], comm, cadence)
        self._dense, self._captured = dense, captured

    def start(self, gradients: GradientBucket) -> None:
        """A linear weight waits for the end of the pass."""
        if gradients not in self._weights:
            super().start(gradients)

    def refuse(self, why: UsageError) -> None:
        """All hear of it by the first thing that they exchange."""
        if self._dense:
            everything, self.buckets = self.buckets, self._dense
            try:
                super().refuse(why)
            finally:
                self.buckets = everything
        else:
            self._say([_ABSENT] * len(self._weights), why)

    def finish(self) -> list[Sequence[bool]]:
        contributed = self._finish_dense()
        offered = [self._offer(gradients) for gradients in self._weights]
        rows = self._say([self._rows(*each) for each in zip(self._weights, offered, strict=True)], None)
        most = rows.max(0).values.tolist()
        as_factors = [
            low >= 0 and pays(self._comm.size, high, *_shape(gradients)[::-1])
            for gradients, low, high in zip(self._weights, rows.min(0).values.tolist(), most, strict=True)
        ]
        for gradients, is_less in zip(self._weights, as_factors, strict=True):
            if not is_less:
                super().start(gradients)
        self._exchange(
            [
                (gradients, factors, count)
                for gradients, factors, count, is_less in zip(
                    self._weights, offered, most, as_factors, strict=True
                )
                if is_less and count
            ]
        )
        for gradients, is_less in zip(self._weights, as_factors, strict=True):
            if not is_less:
                self._wait(gradients)
        return [*contributed, *([bool(any_rank)] for any_rank in (rows != _ABSENT).any(0).tolist())]

    def _finish_dense(self) -> list[Sequence[bool]]:
        if not self._dense:
            return []
        everything, self.buckets = self.buckets, self._dense
        try:
            return super().finish()
        finally:
            self.buckets = everything

    def _offer(self, gradients: GradientBucket) -> Factors | None:
        """This rank's factors of a weight, if they give its gradient."""
        factors = self._captured.take(gradients.names[0])
        if factors is None or not gradients.full:
            return None
        dense = gradients.bucket.views[0]
        generator = torch.Generator().manual_seed(dense.shape[1])
        probe = torch.randn(dense.shape[1], generator=generator).to(dense)
        errors, along = factors.errors.to(dense.dtype), factors.inputs.to(dense.dtype) @ probe
        expected = self.prescale * (errors.T @ along)
        size = self.prescale * (errors.abs().T @ along.abs()).max()
        short = min(factors.errors.dtype.itemsize, factors.inputs.dtype.itemsize, dense.dtype.itemsize) < 4
        allowed = size * (_ROUNDING_16 if short else _ROUNDING)
        return factors if bool((dense @ probe - expected).abs().max() <= allowed) else None

    def _rows(self, gradients: GradientBucket, offered: Factors | None) -> int:
        if not gradients.full:
            return _ABSENT
        return _DENSE if offered is None else len(offered.inputs)

    def _say(self, rows: list[int], why: UsageError | None) -> Tensor:
        """What each rank has of each weight, `[ranks, weights]`.

        Raises: UsageError, on all ranks, if one cannot take part, or has taken other steps.
        """
        device = self.buckets[0].bucket.flat.device
        own = torch.tensor([why is not None, self.steps_taken % 2, *rows], dtype=torch.int64, device=device)
        said = self._gather(own)
        if bool(said[:, 0].any()):
            raise refusal(self._comm, device, why)
        if len(set(said[:, 1].tolist())) > 1:
            raise other_steps(self._comm, device, self.steps_taken)
        return said[:, 2:]

    def _exchange(self, chosen: Sequence[tuple[GradientBucket, Factors | None, int]]) -> None:
        """Leaves the average of all ranks' products in the views of these weights."""
        if not chosen:
            return
        parts = [part for gradients, factors, most in chosen for part in _padded(gradients, factors, most)]
        found, place = self._gather(torch.cat(parts)), 0
        for gradients, _, most in chosen:
            view = gradients.bucket.views[0]
            sides = []
            for length in reversed(view.shape):
                sides.append(found[:, place : place + most * length].reshape(-1, length))
                place += most * length
            torch.mul(sides[1].T @ sides[0], self.prescale, out=view)

    def _gather(self, own: Tensor) -> Tensor:
        """All ranks' values, `[ranks, count]`."""
        found = own.new_empty(self._comm.size, len(own))
        self._comm.count(found, crossings=1)
        work = dist.all_gather([*found.unbind()], own, self._comm.group, async_op=True)
        self._comm.wait(self._comm.work(work))
        return found


def _padded(gradients: GradientBucket, factors: Factors | None, most: int) -> list[Tensor]:
    """Inputs and errors, flat, with rows of zeros up to `most`; all zeros where there are none."""
    view, padded = gradients.bucket.views[0], []
    for length, side in zip(reversed(view.shape), factors or (None, None), strict=True):
        whole = view.new_zeros(most, length)
        if side is not None:
            whole[: len(side)] = side
        padded.append(whole.flatten())
    return padded


def _shape(gradients: GradientBucket) -> tuple[int, int]:
    outputs, inputs = gradients.bucket.views[0].shape
    return outputs, inputs
