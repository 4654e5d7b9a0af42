"""How far the model of a member has moved in a round, and what becomes of the mean of all: an `Exchange`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tweed.cadence import Outer
from tweed.elastic.training.buffers import move, movement, numel
from tweed.elastic.training.gradients import widest
from tweed.errors import NonFinite, UsageError
from tweed.exchange.bucket import Bucket, assign, item
from tweed.exchange.gradients import local_buckets
from tweed.exchange.shards import local, spread_as

if TYPE_CHECKING:
    from tweed.elastic.training.rounds import MemberRounds


class MemberMovement:
    """See the module; `MemberRounds` says when.

    A contribution has the movements of all parameters, then those of the model's buffers, each times samples.

    Args:
      params: those that are trained, by name, as they are at each call.
      buffers: gives the model's, always as many of the same shapes.
      outer: what becomes of the mean movement; None: the model moves by it.
      bucket_bytes: of a bucket, in which an outer optimizer and codecs see parameters.
      counts: called when a round counts.
      position: gives where the steps are in the samples, for a checkpoint.

    Attributes:
      steps: None before the first batch.
      buckets, sizes, like: see `MemberGradients`.
      thrown_away: the gradients of the batch that is out are.
      result: of the last round that counts; `finite`: all its values are, also those of other processes.
      loaded: see `MemberGradients`.
      paused, within_step, differs: nothing here.

    Cost: memory for two more models, and what `outer` keeps.
    """

    def __init__(
        self,
        params: Mapping[str, Tensor],
        buffers: Callable[[], Sequence[Tensor]],
        outer: Outer[Any] | None,
        bucket_bytes: int,
        counts: Callable[[], None],
        position: Callable[[], Any],
    ) -> None:
        self._counts, self._position = counts, position
        self.paused = self.within_step = self.differs = self.thrown_away = False
        self.steps: MemberRounds | None = None
        self.loaded: Mapping[str, Any] | None = None
        shards = {name: local(param.detach()) for name, param in params.items()}
        members = assign([item(shard) for shard in shards.values()], bucket_bytes)
        groups = [{name: shards[name] for name in (list(shards)[index] for index in one)} for one in members]
        self.buckets = local_buckets(groups)
        self._params, self._buffers, self._outer = params, buffers, outer
        self._views = [view for one in self.buckets for view in one.bucket.views]
        self._outer_states = [outer.start(one.bucket.values) if outer else None for one in self.buckets]
        self.like = widest([*shards.values(), *buffers()])
        count = sum(one.bucket.values.numel() for one in self.buckets)
        self.sizes = count, sum(map(numel, buffers()))
        self._common: list[Tensor] = []  # parameters, then buffers
        self.result: Tensor | None = None
        self.finite = True

    def _shards(self) -> list[Tensor]:
        """What this process has of each parameter now, in the order of buckets."""
        names = (name for one in self.buckets for name in one.names)
        return [local(self._params[name].detach()) for name in names]

    @torch.no_grad()
    def begin(self) -> None:
        """The model is the common one."""
        self._common = [tensor.clone() for tensor in (*self._shards(), *self._buffers())]

    @torch.no_grad()
    def total(self, samples: int) -> Tensor:
        """This member's movement, times its samples; the model is the common one again."""
        for view, shard, common in zip(self._views, self._shards(), self._common, strict=False):
            torch.sub(shard, common, out=view)
        values = [one.bucket.values for one in self.buckets]
        parts = [*values, *map(movement, self._buffers(), self._common[len(self._views) :])]
        total = torch.cat([part.to(self.like) for part in parts])
        self.back()
        return total.mul_(samples) if samples else total.zero_()

    @torch.no_grad()
    def back(self) -> None:
        """The model is the common one again."""
        for tensor, common in zip((*self._shards(), *self._buffers()), self._common, strict=True):
            tensor.copy_(common)

    @torch.no_grad()
    def take(self) -> None:
        """The common model moves by the mean of the round that counts.

        Raises: NonFinite, at all members.
        """
        assert self.result is not None  # a round counts
        if not self.finite:
            raise NonFinite(
                "NaN or infinity in the mean movement of a round of local steps, at all members. A smaller "
                "learning rate, or clipped gradients, may help; the last checkpoint is as it was"
            )
        values = [one.bucket.values for one in self.buckets]
        sizes = [*(one.numel() for one in values), *map(numel, self._buffers())]
        parts = iter(torch.split_with_sizes(self.result, sizes))
        for value, state in zip(values, self._outer_states, strict=True):
            mean = next(parts).to(value.dtype)
            value.copy_(mean if self._outer is None else self._outer.advance(mean, state))
        for view, shard, common in zip(self._views, self._shards(), self._common, strict=False):
            shard.copy_(common + view)
        move(self._buffers(), self._common[len(self._views) :], parts)
        self.begin()
        self._counts()

    def before_step(self) -> None:
        if self.steps is None:
            raise UsageError(
                "members that come and go learn from the run which samples are theirs: loop over "
                "run.batches(dataset, steps, batch) instead of a DataLoader of your own"
            )
        self.steps.before_step()

    @property
    def unused(self) -> set[str]:
        """Names of the parameters that have no gradient in this step."""
        return set(self._params) if self.thrown_away else set()

    def drawn(self) -> None:
        """The loop gets a batch."""

    def check_finite(self) -> None:
        """Does nothing here, as `take` looks."""

    def after_step(self, norm: float | None) -> None:
        """Nothing: a round ends when the loop's body has."""

    def finish(self) -> None:
        """Nothing: `MemberRounds.end` does it."""

    def average(self, tensors: list[Tensor]) -> list[Tensor]:
        """The values of the common model for these tensors: that model is what is trained."""
        names = [name for one in self.buckets for name in one.names]
        whose = [*(self._params[name] for name in names), *self._buffers()]
        common = {id(one): spread_as(kept, one) for one, kept in zip(whose, self._common, strict=False)}
        return [common.get(id(tensor), tensor) for tensor in tensors]

    def before(self) -> None:
        """None: each exchange counts when it has ended."""

    def state(self) -> dict[str, Any]:
        return {"position": self._position(), "outer": self.state_dict()}

    def load(self, state: Mapping[str, Any]) -> None:
        if self.steps is not None:
            raise UsageError("load_state_dict: members have begun already; load before run.batches()")
        self.loaded = state["position"]
        self.load_state_dict(state["outer"])

    def state_dict(self) -> dict[str, Any]:
        """The state of the outer optimizer, which is the same at all members; for each parameter, spread as
        that is."""
        return {name: spread_as(view, param).clone() for name, view, param in self._outer_views()}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, view, _ in self._outer_views():
            view.copy_(local(state[name]))

    def _outer_views(self) -> Iterator[tuple[str, Tensor, Tensor]]:
        """What an outer optimizer keeps of each parameter: its name, this process's part, the parameter."""
        for one, state in zip(self.buckets, self._outer_states, strict=True):
            for field in () if state is None else fields(state):
                kept = Bucket(getattr(state, field.name), one.bucket.views)
                for name, view in zip(one.names, kept.views, strict=True):
                    yield f"{field.name} of {name}", view, self._params[name]

    def close(self) -> None:
        """Does nothing, as nothing is held."""
