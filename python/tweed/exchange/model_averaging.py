"""Exchange of models, or of how far they have moved, as they are, between optimizer steps.

Averaged are parameters that are trained; `untrained` has what else is in a model. The optimizer's state stays
with each rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tweed.cadence import Stop
from tweed.errors import UsageError
from tweed.exchange.bucket import assign, item
from tweed.exchange.cadence_driver import CadenceDriver
from tweed.exchange.checkpoint import plain
from tweed.exchange.communicator import Communicator
from tweed.exchange.untrained import Untrained


class BetweenSteps:
    """What both kinds have in common: an `Exchange` after steps, when the cadence decides so.

    Args:
      rest: of the model, beside the parameters that are trained.
      comm: the group.
      cadence: when to exchange.
      replicas_diverge: ranks' models differ after an exchange too.
    """

    def __init__(
        self, rest: Untrained, comm: Communicator, cadence: CadenceDriver, *, replicas_diverge: bool
    ) -> None:
        self.paused = self.within_step = False
        self._rest = rest
        self._comm = comm
        self._cadence = cadence
        self._replicas_diverge = replicas_diverge
        self.differs = False  # may ranks' models differ just now?

    def before_step(self) -> None:
        """Nothing: gradients stay local."""

    def check_finite(self) -> None:
        """Nothing: `exchange` checks what it sends."""

    def after_step(self, norm: float | None) -> None:
        self.differs = True
        self._maybe_exchange()

    def _maybe_exchange(self) -> None:
        if self._cadence.decide():
            self.exchange()
            self.differs = self._replicas_diverge

    def finish(self) -> None:
        self._cadence.handle(Stop())
        self._maybe_exchange()
        self.synchronize()
        self.differs = False

    def average(self, tensors: list[Tensor]) -> list[Tensor]:
        """A loop may have moved models by hand."""
        differs = self.differs or not all(self._rest.compare(tensors, tensors[0].device))
        return means(tensors, self._comm) if differs else tensors

    def before(self) -> None:
        """None: each exchange counts when it has ended."""

    def load(self, state: Mapping[str, Any]) -> None:
        self.differs = True

    def close(self) -> None:
        """Does nothing, as nothing is held."""

    def exchange(self) -> None:
        """Exchanges the models now."""
        raise NotImplementedError  # each subclass has its own

    def synchronize(self) -> None:
        """Makes models equal on all ranks that differ still, or again, as a loop has moved them by hand."""
        raise NotImplementedError  # each subclass has its own


class ModelExchange(BetweenSteps):
    """Averages models.

    Args:
      params: those that are trained, by name: always as many, of the same shapes.
      rest: of the model.
      comm: the group.
      cadence: when to exchange.
      bucket_bytes: size of a full bucket.
      anchored: exchange how far each parameter has moved since the last exchange instead of its value. The
        results agree to rounding; what is sent are small values, as a lossy transport needs. Costs a copy
        of the model.
    """

    def __init__(
        self,
        params: Mapping[str, Tensor],
        rest: Untrained,
        comm: Communicator,
        cadence: CadenceDriver,
        bucket_bytes: int,
        *,
        anchored: bool,
    ) -> None:
        super().__init__(rest, comm, cadence, replicas_diverge=False)
        self._params = params
        now = [param.detach() for param in params.values()]
        self._members = assign([item(tensor) for tensor in now], bucket_bytes)
        self._buckets = [comm.bucket([now[index] for index in members]) for members in self._members]
        self._anchor = [tensor.clone() for tensor in now] if anchored else None

    @torch.no_grad()
    def exchange(self) -> None:
        """See `BetweenSteps`.

        Raises: UsageError, on all ranks, if the model of one is another one than it was at `attach`.
        """
        self._average_unless_equal(lambda param: param.grad is None)  # else it is trained, and differs
        self._comm.end_exchange()

    @torch.no_grad()
    def synchronize(self) -> None:
        self._average_unless_equal(lambda param: True)

    def _average_unless_equal(self, may_be_equal: Callable[[Tensor], bool]) -> None:
        """Averages what differs among ranks, of parameters which `may_be_equal` and of the rest of the model,
        and all other parameters."""
        self._rest.look()
        params = [*self._params.values()]
        unsure = [param if may_be_equal(param) else None for param in params]
        equal = self._rest.compare([*unsure, *self._rest.tensors()], self._buckets[0].flat.device)
        self._average(params, equal[: len(params)])
        self._rest.average(equal[len(params) :])

    def _average(self, params: Sequence[Tensor], equal: Sequence[bool]) -> None:
        works = []
        for members, bucket in zip(self._members, self._buckets, strict=True):
            if all(equal[index] for index in members):
                continue
            for view, index in zip(bucket.views, members, strict=True):
                anchor = None if self._anchor is None else self._anchor[index]
                value = params[index] if anchor is None else torch.sub(params[index], anchor, out=view)
                torch.mul(value, self._comm.prescale, out=view)
            works.append((members, bucket, self._comm.start(bucket)))
        for members, bucket, work in works:
            self._comm.wait(work)
            for view, index in zip(bucket.views, members, strict=True):
                if not equal[index]:
                    anchor = None if self._anchor is None else self._anchor[index]
                    params[index].copy_(view if anchor is None else anchor.add_(view))
        for param, anchor in zip(params, self._anchor or (), strict=bool(self._anchor)):
            anchor.copy_(param)

    def state(self) -> dict[str, Any]:
        """The model that ranks agreed on last."""
        return {"anchor": plain(self._anchor)}

    def load(self, state: Mapping[str, Any]) -> None:
        super().load(state)
        anchor, saved = self._anchor, state["anchor"]
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
