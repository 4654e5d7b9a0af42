"""Exchange of models, or of how far they have moved, as they are, between optimizer steps.

Averaged are parameters, and floating-point buffers if `attach` keeps buffers equal. The optimizer's state and
whole-number buffers stay with each rank.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tweed.errors import UsageError
from tweed.exchange.bucket import assign, item
from tweed.exchange.cadence_driver import CadenceDriver
from tweed.exchange.checkpoint import plain
from tweed.exchange.communicator import Communicator


class BetweenSteps:
    """What both kinds have in common: an `Exchange` after steps, when the cadence decides so.

    Args:
      comm: the group.
      cadence: when to exchange.
      replicas_diverge: ranks' models differ after an exchange too.
    """

    def __init__(self, comm: Communicator, cadence: CadenceDriver, *, replicas_diverge: bool) -> None:
        self.paused = False
        self._comm = comm
        self._cadence = cadence
        self._replicas_diverge = replicas_diverge
        self.differs = False  # may ranks' models differ just now?

    def before_step(self) -> None:
        """Nothing: gradients stay local."""

    def check_finite(self) -> None:
        """Nothing: `exchange` checks what it sends."""

    def after_step(self, norm: float | None) -> None:
        """See `Exchange`."""
        self.differs = True
        self._maybe_exchange()

    def _maybe_exchange(self) -> None:
        if self._cadence.decide():
            self.exchange()
            self.differs = self._replicas_diverge

    def finish(self) -> None:
        """See `Exchange`; the cadence knows of the stop."""
        self._maybe_exchange()
        self.unite()
        self.differs = False

    def average(self, tensors: list[Tensor]) -> list[Tensor]:
        """See `Exchange`."""
        return means(tensors, self._comm) if self.differs else tensors

    def load(self, state: Mapping[str, Any]) -> None:
        """See `Exchange`."""
        self.differs = True

    def close(self) -> None:
        """Nothing is held."""

    def exchange(self) -> None:
        """Exchanges now."""
        raise NotImplementedError  # each subclass has its own

    def unite(self) -> None:
        """Makes models equal on all ranks that still differ after `exchange`."""


class TensorAverage:
    """Averages tensors over all ranks, bucket by bucket.

    Args:
      tensors: gives the tensors, always as many and of the same shapes: parameters and floating-point
        buffers.
      comm: the group.
      bucket_bytes: size of a full bucket.
      anchored: exchange how far each tensor has moved since the last exchange instead of its value. The
        results agree to rounding; what is sent are small values, as a lossy transport needs. Costs a copy
        of the model.
    """

    def __init__(
        self,
        tensors: Callable[[], Sequence[Tensor]],
        comm: Communicator,
        bucket_bytes: int,
        *,
        anchored: bool,
    ) -> None:
        self._tensors = tensors
        self._comm = comm
        now = [tensor.detach() for tensor in tensors()]
        self._members = assign([item(tensor) for tensor in now], bucket_bytes)
        self._buckets = [comm.bucket([now[index] for index in members]) for members in self._members]
        self.anchor = [tensor.clone() for tensor in now] if anchored else None

    @torch.no_grad()
    def average(self, broken: Collection[int] = ()) -> None:
        """Makes the tensors equal on all ranks: the average without ranks that are `broken`. Waits for it."""
        tensors = self._tensors()
        works = []
        for members, bucket in zip(self._members, self._buckets, strict=True):
            for view, index in zip(bucket.views, members, strict=True):
                if self._comm.rank in broken:
                    view.zero_()
                else:
                    self._put_in(view, tensors[index], index)
            works.append(self._comm.start(bucket))
        contributors = self._comm.owners.contributors
        for members, bucket, work in zip(self._members, self._buckets, works, strict=True):
            self._comm.wait(work)
            if broken:
                bucket.values.mul_(contributors / (contributors - len(broken)))
            for view, index in zip(bucket.views, members, strict=True):
                self._take_out(view, tensors[index], index)

    def _put_in(self, view: Tensor, tensor: Tensor, index: int) -> None:
        value = tensor if self.anchor is None else torch.sub(tensor, self.anchor[index], out=view)
        torch.mul(value, self._comm.prescale, out=view)

    def _take_out(self, view: Tensor, tensor: Tensor, index: int) -> None:
        if self.anchor is not None:
            self.anchor[index].add_(view)
            view = self.anchor[index]
        tensor.copy_(view)


class ModelExchange(BetweenSteps):
    """Averages models, or with `anchored` how far they have moved; arguments as for `TensorAverage`."""

    def __init__(
        self,
        tensors: Callable[[], Sequence[Tensor]],
        comm: Communicator,
        cadence: CadenceDriver,
        bucket_bytes: int,
        *,
        anchored: bool,
    ) -> None:
        super().__init__(comm, cadence, replicas_diverge=False)
        self._average = TensorAverage(tensors, comm, bucket_bytes, anchored=anchored)

    def exchange(self) -> None:
        """See `BetweenSteps`."""
        self._average.average()
        self._comm.end_exchange()

    def state(self) -> dict[str, Any]:
        """See `Exchange`: the model that ranks agreed on last."""
        return {"anchor": plain(self._average.anchor)}

    def load(self, state: Mapping[str, Any]) -> None:
        """See `Exchange`."""
        super().load(state)
        anchor, saved = self._average.anchor, state["anchor"]
        if anchor is None or saved is None:
            return
        if [tensor.shape for tensor in saved] != [tensor.shape for tensor in anchor]:
            raise UsageError("the stored state belongs to a model of other shapes")
        for kept, tensor in zip(anchor, saved, strict=True):
            kept.copy_(tensor)


@torch.no_grad()
def means(tensors: Sequence[Tensor], comm: Communicator) -> list[Tensor]:
    """The averages over all ranks of `tensors`.

    Cost: an all-reduce of all of them, in which nothing gets lost.
    """
    result: dict[int, Tensor] = {}
    for members in assign([item(tensor) for tensor in tensors], limit_bytes=25 * 2**20):
        group = [tensors[index].detach() for index in members]
        flat = torch.cat([tensor.flatten() for tensor in group])
        pieces = torch.split(comm.mean(flat), [tensor.numel() for tensor in group])
        for index, tensor, piece in zip(members, group, pieces, strict=True):
            result[index] = piece.view(tensor.shape)
    return [result[index] for index in range(len(tensors))]
