"""Gradients of members that come and go: one flat sum over samples, with all that a step changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tweed.elastic.training.buffers import move, movement, numel
from tweed.elastic.training.steps import MemberSteps
from tweed.errors import UsageError
from tweed.exchange.bucket import GradientBucket
from tweed.exchange.gradients import GradientReducer, Groups, local_buckets
from tweed.exchange.shards import local


class MemberGradients(GradientReducer):
    """A reducer whose sums are those of `MemberSteps`.

    The flat sum has the gradients, then a mark per parameter that shows whether a member used it, then how
    far the model's buffers have moved, each times the samples of the batch. So the mean has all that differs
    among members after a backward pass, and a step that counts leaves the same bits at all. Each batch begins
    with the buffers of the last step, so that statistics do not depend on how many there are. Of a model that
    is spread over the processes of a sharded member each has the sum of its own part, and all that follows:
    `tweed.elastic.training.sharded_member` puts them together.

    Args:
      groups: per bucket the parameters, by name.
      buffers: gives the model's, always as many of the same shapes.
      position: gives where the steps are in the samples, for a checkpoint.

    Attributes:
      steps: None before the first batch.
      unused: names of the parameters to which the last step has no gradient.
      loaded: the position in a checkpoint that was loaded; None: none was.
      like: of the type and place of the sum.
      sizes: of the gradients in it, and of what follows them.
      parts: of the gradients, those which are complete before a backward pass ends.
    """

    def __init__(
        self, groups: Groups, buffers: Callable[[], Sequence[Tensor]], position: Callable[[], Any]
    ) -> None:
        shards = [{name: local(param.detach()) for name, param in group.items()} for group in groups]
        super().__init__(local_buckets(shards))
        self.steps: MemberSteps | None = None
        self.unused: set[str] = set()
        self.loaded: Mapping[str, Any] | None = None
        self._buffers, self._position = buffers, position
        self._begun: list[Tensor] = []  # the buffers of the last step
        tensors = [*(one.bucket.values for one in self.buckets), *buffers()]
        self.like = widest(tensors)
        self._total, self._ready = self.like, 0  # over the samples of a batch, and how far it has come
        numels = [one.bucket.values.numel() for one in self.buckets]
        self.parts = numels[:-1]
        behind = [*(len(one.names) for one in self.buckets), *map(numel, buffers())]
        self.sizes = sum(numels), sum(behind)

    def add(self, buffer: Tensor) -> None:
        """Before the first batch: this, which is zero at each `drawn`, becomes the mean of all members'."""
        before = self._buffers
        self._buffers = lambda: [*before(), buffer]
        self.sizes = self.sizes[0], self.sizes[1] + buffer.numel()

    def wanted(self) -> bool:
        """Always true once the run deals samples. Raises: UsageError before that."""
        if self.steps is None:
            raise UsageError(
                "members that come and go learn from the run which samples are theirs: loop over "
                "run.batches(dataset, steps, batch) instead of a DataLoader of your own"
            )
        self._total, self._ready = self.like.new_empty(sum(self.sizes)), 0
        return True

    def start(self, gradients: GradientBucket) -> None:
        self._put_in(gradients.bucket.values)
        assert self.steps is not None  # it was wanted
        self.steps.start(self._total, self._ready)

    def finish(self) -> list[Sequence[bool]]:
        """In an iteration that does not count all gradients are zero."""
        steps = self.steps
        assert steps is not None  # it was wanted
        if steps.samples and not any(one.given for one in self.buckets):
            raise UsageError(
                "the backward pass of a batch of run.batches() has reached no parameter, and its samples are "
                "in the step. Under FSDP2 leave gradient synchronisation on: batches(at_most=n) adds them up"
            )
        for one in self.buckets:
            self._put_in(torch.tensor([float(index in one.given) for index in range(len(one.names))]))
        buffers = self._buffers()
        with torch.no_grad():
            for buffer, before in zip(buffers, self._begun, strict=True):
                self._put_in(movement(buffer, before))
                buffer.copy_(before)
        total, self._total = self._total, self.like
        result = steps.computed(total)
        if result is not None:
            return self._put_back(result, buffers)
        self.unused = {name for one in self.buckets for name in one.names}
        for one in self.buckets:
            one.bucket.values.zero_()
        return [[False] * len(one.names) for one in self.buckets]

    def drawn(self) -> None:
        """The loop gets a batch: the model is that of the last step."""
        self._begun = [buffer.clone() for buffer in self._buffers()]

    @torch.no_grad()
    def _put_in(self, mean: Tensor) -> None:
        """The next values of the sum: the loss is the mean over the batch, and sums are over samples."""
        assert self.steps is not None  # it was wanted
        part = self._total[self._ready :][: mean.numel()]
        self._ready += mean.numel()
        if self.steps.samples:
            part.copy_(mean.reshape(-1)).mul_(self.steps.samples)
        else:
            part.zero_()  # what a filler gave may not be finite

    @torch.no_grad()
    def _put_back(self, result: Tensor, buffers: Sequence[Tensor]) -> list[Sequence[bool]]:
        values = [one.bucket.values for one in self.buckets]
        counts = [len(one.names) for one in self.buckets]
        sizes = [*(value.numel() for value in values), *counts, *map(numel, buffers)]
        parts = iter(torch.split_with_sizes(result, sizes))
        for value in values:
            value.copy_(next(parts))
        by_any: list[Sequence[bool]] = [(next(parts) != 0).tolist() for _ in counts]
        move(buffers, self._begun, parts)
        marked = [zip(one.names, used, strict=True) for one, used in zip(self.buckets, by_any, strict=True)]
        self.unused = {name for of_bucket in marked for name, is_used in of_bucket if not is_used}
        return by_any

    def state(self) -> dict[str, Any]:
        return {"position": self._position()}

    def load(self, state: Mapping[str, Any]) -> None:
        if self.steps is not None:
            raise UsageError("load_state_dict: members have begun already; load before run.batches()")
        self.loaded = state["position"]


def widest(tensors: Sequence[Tensor]) -> Tensor:
    """An empty tensor of the type in which these are summed, where they are."""
    wide = any(tensor.dtype == torch.float64 for tensor in tensors)
    return torch.empty(0, dtype=torch.float64 if wide else torch.float32, device=tensors[0].device)
