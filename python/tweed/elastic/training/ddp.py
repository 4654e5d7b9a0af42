"""Members that train through DistributedDataParallel: its communication hook in the place of attach's hooks.

    backward ── DDP's buckets ──> the hook ──> `MemberGradients` ──> means, which go back into the buckets

DDP keeps the process group that it was made with, so this is one of the process alone, over which it
exchanges nothing. Its buckets change after its own first pass, which is a later one at who joins; so
gradients go on in the buckets of `GradientExchange`, which are the same at all members. A pass's last bucket
waits for the means, and with it the pass; in an iteration that does not count all gradients are zero, and the
optimizer, whose hooks are attach's, steps by none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Parameter
from torch.nn.parallel import DistributedDataParallel

from tweed.elastic.training.gradients import MemberGradients
from tweed.errors import UsageError
from tweed.exchange.context import Context
from tweed.exchange.gradients import GradientReducer, Groups
from tweed.hooks.gradient import Beside, GradientExchange
from tweed.hooks.trained import Trained

_MORE = (
    "the model is in DistributedDataParallel over {} processes, and members exchange gradients themselves, "
    'in groups that change. Give it a group of this process alone: dist.init_process_group("gloo", '
    "store=dist.HashStore(), rank=0, world_size=1) before DistributedDataParallel(model); or attach the "
    "plain model"
)


def check_alone(model: DistributedDataParallel) -> None:
    """Raises UsageError if DDP is to exchange with other processes, or has a hook."""
    group: dist.ProcessGroup = model.process_group
    if group.size() > 1:
        raise UsageError(_MORE.format(group.size()))
    if model._comm_hooks:
        raise UsageError(
            "the model's DistributedDataParallel already has a communication hook, which cannot be replaced, "
            "and members need one of their own. Wrap the model in a new DistributedDataParallel; for "
            "compression take a strategy, such as top_k:0.01"
        )


class DdpExchange(GradientExchange):
    """See the module. In the place of `GradientExchange`, and made of the same.

    Args:
      model: whose hook it takes, for good: after `close` that leaves gradients as they are.
    """

    def __init__(
        self,
        model: DistributedDataParallel,
        params: Trained,
        context: Context,
        bucket_bytes: int,
        made: Callable[[Groups], GradientReducer],
        beside: Beside,
    ) -> None:
        self._closed = False
        self._numel = len(params.keys() - model.parameters_to_ignore)
        super().__init__(params, context, bucket_bytes, made, beside)
        self._waiting: list[tuple[dict[Parameter, Tensor], Tensor, torch.futures.Future[Tensor]]] = []
        model.register_comm_hook(None, lambda _, bucket: self._take_bucket(bucket))

    def _listen(self, param: Tensor) -> None:
        """DDP has hooks of its own, and calls none in a second pass over what one forward pass has left."""

        def check(_: Tensor) -> None:
            assert isinstance(self.reducer, MemberGradients)  # a member's
            if self.reducer.steps is not None:
                self.reducer.steps.check()

        self._hooks.append(param.register_post_accumulate_grad_hook(check))  # type: ignore[no-untyped-call]

    def _take_bucket(self, bucket: Any) -> torch.futures.Future[Tensor]:
        """All gradients of one of DDP's buckets are there. They are means when what this returns is done."""
        done: torch.futures.Future[Tensor] = torch.futures.Future()
        if self._closed:
            done.set_result(bucket.buffer())
            return done
        if not self._open and self._wanted():
            self._begin()
        given: dict[Parameter, Tensor] = dict(zip(bucket.parameters(), bucket.gradients(), strict=True))
        self._waiting.append((given, bucket.buffer(), done))
        for param, gradient in given.items():
            if param.grad is not None:  # else nothing has used it, and DDP gives zeros
                gradients, index = self._place[param]
                gradients.bucket.views[index].copy_(gradient)
                gradients.given.add(index)
        self._start_full()
        if sum(len(one) for one, *_ in self._waiting) == self._numel:  # a static graph names no last bucket
            self._exchange()
            self._give_back()
        return done

    def _give_back(self) -> None:
        for given, buffer, done in self._waiting:
            for param, gradient in given.items():
                gradients, index = self._place[param]
                gradient.copy_(gradients.bucket.views[index])
            done.set_result(buffer)
        self._waiting = []

    def close(self) -> None:
        self._closed = True
        super().close()
