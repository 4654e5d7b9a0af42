"""Exchange of gradients: hooks on parameters put them into buckets while the backward pass runs.

A view that somebody else holds when an exchange begins is the user's: the bucket moves to other memory.
"""

from __future__ import annotations

import functools
import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)

from tweed.errors import UsageError
from tweed.exchange.bucket import GradientBucket, assign, item
from tweed.exchange.coded_steps.gradients import CodedGradients
from tweed.exchange.context import Context
from tweed.exchange.gradients import GradientReducer, Groups
from tweed.exchange.shards import is_spread, local, spread_as
from tweed.exchange.verdicts import Verdict
from tweed.hooks.last_exchange import LastExchange
from tweed.hooks.trained import Trained

_TWICE = (
    "{!r} got a second gradient within one backward pass. Either a reentrant checkpoint runs it twice: use "
    "checkpoint(..., use_reentrant=False). Or an earlier backward pass was broken off by an error: then "
    "detach() and attach again, on all ranks"
)
_ACCUMULATED = (
    "two backward passes before one optimizer step, and each was exchanged. Where gradients accumulate over "
    "several, run all but the last within `with run.no_sync():`, and one exchange does"
)
_THROWN_AWAY = (
    "two backward passes before one optimizer step, and each was exchanged; the gradients of the first were "
    "cleared, so that its exchange was for nothing. That is right if the batch was skipped. If the gradients "
    "come from the loss of another model, as a GAN's generator leaves some in the discriminator, run that "
    "backward pass within `with run.no_sync():`, and nothing is exchanged"
)
_NOT_STEPPED = (
    "no step of the attached optimizer has followed the last exchange, and the server has taken one: its "
    "model would differ. Step after each backward pass that exchanges; or run it within `with run.no_sync():`"
)
_LATE = (
    "{!r} got its gradient after those of its backward pass were exchanged. Let FSDP2 finish backward passes "
    "by itself: one fully_shard() around the whole model does, and no manual finalization"
)
_say_once = functools.cache(logging.getLogger("tweed").warning)
FIRST_BUCKET_BYTES = 2**20  # as DDP: small, so that the exchange begins early in the backward pass


class Beside(NamedTuple):
    """What a run has beside gradients.

    Attributes:
      snapshot: gives all that an exchange changes for later ones.
      take_back: makes that as it was in a snapshot.
      buffers: gives those of the model that an exchange makes the same on all ranks.
      root: whose they become; None: the first worker's.
    """

    snapshot: Callable[[], Any]
    take_back: Callable[[Any], None]
    buffers: Callable[[], Iterable[Tensor]] = list
    root: int | None = None


class GradientExchange:
    """Averages the gradients of `params` in each backward pass: an `Exchange`.

    A hook on each parameter puts its gradient into a bucket, as a view, and starts the exchange of the bucket
    when it is full. Buckets start in one fixed order, the same on all ranks whatever order autograd takes.
    When the backward pass ends, what is left is started too, and all is waited for: after `loss.backward()`
    gradients are averages. What starting and waiting mean is up to the strategy's reducer.

    A parameter without a gradient counts as zero; one to which no rank contributed keeps `grad = None`.

    Args:
      params: those that get gradients.
      context: of this process among those that train.
      bucket_bytes: size of a full bucket.
      made: what reduces gradients, of the names and parameters of each bucket.
      beside: what the run has beside gradients.
    """

    def __init__(
        self,
        params: Trained,
        context: Context,
        bucket_bytes: int,
        made: Callable[[Groups], GradientReducer],
        beside: Beside,
    ) -> None:
        self.paused = False
        self._fresh = False  # are gradients averages, since an exchange after the last step?
        self._passes = 0  # backward passes since the last step that were exchanged
        self.within_step = False  # those of a closure are meant to be, each by itself
        self._context = context
        self._steps = 0
        self._trained = params
        self._beside = beside
        late_first = list(params.items())[::-1]  # as a backward pass reaches them, more or less
        first_bytes = min(bucket_bytes, FIRST_BUCKET_BYTES)
        members = assign([item(param) for _, param in late_first], bucket_bytes, first_bytes)
        groups = [dict(late_first[index] for index in of_bucket) for of_bucket in members]
        self.reducer = made(groups)
        self._buckets = self.reducer.buckets
        self._open = False
        self._started = 0
        self._buffers_on_their_way: list[Any] = []
        self._task = -1  # number that autograd gave the backward pass whose end is waited for
        self._pass: Callable[[], Any] = lambda: None  # its callback, which lives as long as it runs
        self._ended = -1  # and that of one whose gradients were exchanged
        self._last = LastExchange(params, beside.snapshot)
        self._cleared_between = False  # were gradients cleared between the last exchange and this one?
        self._refused: UsageError | None = None  # why this rank cannot take part in the next one
        self._is_spread = any(is_spread(param) for param in params.values())
        self._lock = threading.Lock()  # autograd has one thread per accelerator
        self._hooks: list[Any] = []
        self._follow()

    def _follow(self) -> None:
        """Hooks on the parameters that there are now."""
        for hook in self._hooks:
            hook.remove()
        self._followed = self._trained.objects
        self._params = [[self._trained[name] for name in one.names] for one in self._buckets]
        self._place = {
            param: (gradients, index)
            for gradients, of_bucket in zip(self._buckets, self._params, strict=True)
            for index, param in enumerate(of_bucket)
        }
        self._hooks = [
            register_module_parameter_registration_hook(self._is_put_in),
            register_module_module_registration_hook(self._is_put_in),
        ]
        for param in self._followed:
            self._listen(param)

    def _is_put_in(self, module: nn.Module, name: str, new: Tensor | nn.Module | None) -> None:
        """A parameter, or a module with some, becomes a part of a module. If that is of this model, the first
        gradient must be heard of: then `look` says whether it can be taken up."""
        if new is not None and self._trained.has(module):
            for param in [new] if isinstance(new, Tensor) else new.parameters():
                self._listen(param)

    def _listen(self, param: Tensor) -> None:
        """Hooks that say when a gradient comes, and when it is there."""
        if param.requires_grad:
            hook = self._on_gradient
            self._hooks.append(param.register_post_accumulate_grad_hook(hook))  # type: ignore[no-untyped-call]
            if self.reducer.takes_back:
                self._hooks.append(param.register_hook(self._before_gradient))  # type: ignore[no-untyped-call]

    def before(self) -> Mapping[str, Any] | None:
        self._trained.look()
        before: Mapping[str, Any] | None = self._last.before()
        return before

    def _before_gradient(self, gradient: Tensor) -> None:
        self._last.see()

    def _name(self, param: Parameter) -> str:
        gradients, index = self._place[param]
        return gradients.names[index]

    def _on_gradient(self, param: Tensor) -> None:
        assert isinstance(param, Parameter)  # hooks are on parameters only
        with self._lock:
            if self._is_spread and torch._C._current_graph_task_id() == self._ended:
                raise UsageError(_LATE.format(self._name(param)))
            if self.paused:
                self._fresh = False  # this rank's own gradients are added to averages
                if param in self._place:
                    self.reducer.settle(self._name(param), param)
            if self.paused or not self._is_open():
                return
            if param not in self._place:
                return  # it was put into the model, and taken out again
            gradients, index = self._place[param]
            if index in gradients.given:
                raise UsageError(_TWICE.format(gradients.names[index]))
            self._put_in(param, gradients, index)
            self._start_full()

    def _is_open(self) -> bool:
        task = torch._C._current_graph_task_id()
        if task != self._task:  # the first gradient of this backward pass
            self._break_off()
            ends = self._is_nearly_over if self._is_spread else self._backward_ends
            torch.autograd.Variable._execution_engine.queue_callback(ends)
            self._task, self._pass = task, weakref.ref(ends)
            del ends  # or a traceback that is kept would hold it
            if not self._open and self._wanted():
                self._begin()
        return self._open

    def _break_off(self) -> None:
        """An exception has ended the pass before within its exchange, in which others may wait."""
        if self._open and self._pass() is None:
            self._end()
            self._context.break_off()

    def _wanted(self) -> bool:
        """Settles what became of the last exchange, and asks whether there is to be one now."""
        if self._passes and self.reducer.must_step:
            raise UsageError(_NOT_STEPPED)
        self._refused = self._trained.look()
        if self.reducer.takes_back:
            self._settle()
        self.reducer.steps_taken = self._steps
        return self.reducer.wanted()

    def _settle(self) -> None:
        self.reducer.says, partly = self._last.verdict()
        self._refused = self._refused or partly
        if self.reducer.says is Verdict.TAKE_BACK:
            self._beside.take_back(self._last.before())
        self._last.begin(within_step=self.within_step)

    def _begin(self) -> None:
        self._open = True
        # First, so that a rank that cannot take part has begun the same as all.
        tensors = list(self._beside.buffers())
        buffers = self._context.broadcast(tensors, self._beside.root) if tensors else []
        self._buffers_on_their_way = buffers
        if self._refused is not None:
            try:
                self._context.receive(buffers)
                self.reducer.refuse(self._refused)
            finally:
                self._end()
            raise self._refused
        if self._followed is not self._trained.objects:
            self._follow()
        self._cleared_between = any(param.grad is None for param in self._last.given)
        for gradients, params in zip(self._buckets, self._params, strict=True):
            if not self._is_spread and gradients.bucket.is_shared(params):
                self.reducer.renew(gradients.bucket)

    def _is_nearly_over(self) -> None:
        """FSDP2 reduces some gradients in callbacks like this one, which are all queued by now."""
        torch.autograd.Variable._execution_engine.queue_callback(self._backward_ends)

    def _backward_ends(self) -> None:
        nested = torch._C._current_autograd_node() is not None  # a checkpoint's backward within the real one
        if self._open and (not nested or self._started == len(self._buckets)):
            self._exchange()
            self._ended = self._task
            self._passes += not self.within_step
            if self._passes == 2 and self._context.owners.rank == 0:
                _say_once(_THROWN_AWAY if self._cleared_between else _ACCUMULATED)
        elif self._open:
            self._pass = lambda: True  # the real one goes on, which may have had no gradient yet

    def _put_in(self, param: Parameter, gradients: GradientBucket, index: int) -> None:
        """Puts the gradient into its view, zero if there is none. `param.grad` becomes the view."""
        self.reducer.settle(gradients.names[index], param)
        grad, view = param.grad, gradients.bucket.views[index]
        if grad is None:
            view.zero_()
            return
        if grad.layout is not torch.strided:
            name = gradients.names[index]
            raise UsageError(f"the gradient of {name!r} is sparse: make it dense for attach")
        if self._is_spread:
            torch.mul(local(grad.detach()), self.reducer.prescale, out=view)
            param.grad = spread_as(view, param)
        else:
            torch.mul(grad.detach(), self.reducer.prescale, out=view)
            param.grad = view
        gradients.given.add(index)

    def _start_full(self) -> None:
        while self._started < len(self._buckets) and self._buckets[self._started].full:
            self._start_next()

    def _start_next(self) -> None:
        gradients = self._buckets[self._started]
        self._started += 1
        self.reducer.start(gradients)

    def _exchange(self) -> None:
        """Starts what has not started and waits for all. Then every `grad` is the average of all ranks'."""
        if not self._open:
            self._begin()
        try:
            self._start_rest()
            self._finish()
        finally:
            self._end()
        self._last.given = [param for param in self._followed if param.grad is not None]
        self._context.end_exchange()
        self._fresh = True

    def _finish(self) -> None:
        """Waits for all that has started, and takes it up."""
        contributed = self.reducer.finish()
        self._context.receive(self._buffers_on_their_way)
        for gradients, params, by_any in zip(self._buckets, self._params, contributed, strict=True):
            self._take_up(gradients, params, by_any)

    def _take_up(
        self, gradients: GradientBucket, params: Sequence[Parameter], by_any: Sequence[bool]
    ) -> None:
        """Averages of what this rank has no gradient of become gradients, where any rank contributed."""
        for index in gradients.missing():
            if by_any[index]:
                params[index].grad = spread_as(gradients.bucket.views[index], params[index])

    def _end(self) -> None:
        self._open, self._started = False, 0
        for gradients in self._buckets:
            gradients.given.clear()
            gradients.work = None

    def _start_rest(self) -> None:
        for number in range(self._started, len(self._buckets)):
            gradients, params = self._buckets[number], self._params[number]
            for index in gradients.missing():
                self._put_in(params[index], gradients, index)
            self._start_next()

    def before_step(self) -> None:
        """Exchanges now if gradients are not averages: there was no backward pass, or paused ones alone."""
        if self._open or (not self._fresh and self._wanted()):
            self._exchange()
        self._passes = 0
        self._used()

    def _used(self) -> None:
        self._fresh = False
        self._last.used()
        self._steps += 1

    def check_finite(self) -> None:
        """Raises NonFinite if a gradient of the last exchange is not finite, where the reducer looks."""
        self.reducer.check_finite()

    def after_step(self, norm: float | None) -> None:
        """Tells the reducer of a step, by whose norm its cadence may decide."""
        if self.within_step:
            self.within_step = False
            self._used()
        self.reducer.after_step(norm)

    def shards(self) -> Iterator[Any]:
        """This rank's tasks in a step, as `Run.shards` has them; the reducer gets each one's gradient."""
        assert isinstance(self.reducer, CodedGradients)  # the caller looked
        paused, self.paused = self.paused, True
        try:
            for task in self.reducer.tasks():
                yield task
                self._take()
                self.reducer.done()
        finally:
            self.paused = paused

    def _take(self) -> None:
        """Puts the gradients that are there into their views; parameters have none then."""
        for gradients, params in zip(self._buckets, self._params, strict=True):
            for index, param in enumerate(params):
                self._put_in(param, gradients, index)
                param.grad = None
            gradients.given.clear()

    @property
    def differs(self) -> bool:
        """Always False, as the models of ranks never differ."""
        return False

    def finish(self) -> None:
        """Models never differ; what others still send is received."""
        self.reducer.flush()

    def average(self, tensors: list[Tensor]) -> list[Tensor]:
        """The `tensors` as they are, as the models of ranks are equal."""
        return tensors

    def state(self) -> dict[str, Any]:
        """What the reducer keeps for later exchanges."""
        return self.reducer.state()

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from a `state`."""
        self.reducer.load(state)

    def close(self) -> None:
        """Removes the hooks. Gradients become tensors of their own."""
        self.reducer.close()
        for hook in self._hooks:
            hook.remove()
        for param, (gradients, index) in self._place.items():
            view = gradients.bucket.views[index]
            if param.grad is not None and local(param.grad) is view:
                param.grad = spread_as(view.clone(), param)
