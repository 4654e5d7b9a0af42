"""Exchange of gradients, bucket by bucket, while the backward pass still runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Parameter

from tweed.attach.bucket import Bucket, assign, item
from tweed.attach.wire import Wire
from tweed.errors import UsageError

FIRST_BUCKET_BYTES = 2**20  # as DDP: small, so that the exchange begins early in the backward pass


class Load:
    """A bucket, its parameters, and how far it has come in this exchange."""

    def __init__(self, params: list[Parameter], bucket: Bucket) -> None:
        self.params = params
        self.bucket = bucket
        self.view_of = dict(zip(params, bucket.views, strict=True))
        self.placed: set[Parameter] = set()
        self.work: dist.Work | None = None

    @property
    def full(self) -> bool:
        """Whether all its gradients are there."""
        return len(self.placed) == len(self.params)

    def missing(self) -> list[int]:
        """Indices of parameters for which this rank had no gradient to give."""
        return [index for index, param in enumerate(self.params) if param not in self.placed]


class GradientExchange:
    """Averages the gradients of `params` in each backward pass.

    A hook on each parameter puts its gradient into a bucket, as a view, and starts the exchange of the bucket
    when it is full. Buckets start in one fixed order, the same on all ranks whatever order autograd takes.
    When the backward pass ends, what is left is started too, and all is waited for: after `loss.backward()`
    gradients are averages.

    A parameter without a gradient counts as zero. Each bucket carries one mark per parameter that says
    whether this rank gave something; a parameter that no rank gave anything for keeps `grad = None`.

    Args:
      params: by name; those that get gradients.
      wire: the group.
      bucket_bytes: size of a full bucket.
      wanted: asked once per backward pass, before its first gradient: is it to be exchanged?
    """

    def __init__(
        self, params: Mapping[str, Parameter], wire: Wire, bucket_bytes: int, wanted: Callable[[], bool]
    ) -> None:
        self.paused = False
        self.fresh = False  # has there been an exchange since the last step?
        self._names = {param: name for name, param in params.items()}
        self._wire = wire
        self._factor = wire.factor
        self._wanted = wanted
        late_first = list(params.values())[::-1]  # as a backward pass reaches them, more or less
        first_bytes = min(bucket_bytes, FIRST_BUCKET_BYTES)
        buckets = assign([item(param) for param in late_first], bucket_bytes, first_bytes)
        self._loads = [self._load([late_first[index] for index in members]) for members in buckets]
        self._load_of = {param: load for load in self._loads for param in load.params}
        self._open = False
        self._started = 0
        self._task = -1  # number that autograd gave the backward pass whose end is waited for
        self._lock = threading.Lock()  # autograd has one thread per accelerator
        hook = self._on_gradient
        self._hooks = [
            param.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
            for param in params.values()
        ]

    def _load(self, params: list[Parameter]) -> Load:
        return Load(params, self._wire.bucket(params, marked=True))

    def _on_gradient(self, param: Tensor) -> None:
        assert isinstance(param, Parameter)  # hooks are on parameters only
        with self._lock:
            if self.paused or not self._is_open():
                return
            load = self._load_of[param]
            if param in load.placed:
                raise UsageError(self._twice(param))
            self._place(load, param)
            self._start_full()

    def _is_open(self) -> bool:
        task = torch._C._current_graph_task_id()
        if task != self._task:  # the first gradient of this backward pass
            torch.autograd.Variable._execution_engine.queue_callback(self._backward_ends)
            self._task = task
            self._open = self._open or self._wanted()
        return self._open

    def _backward_ends(self) -> None:
        nested = torch._C._current_autograd_node() is not None  # a checkpoint's backward within the real one
        if self._open and (not nested or self._started == len(self._loads)):
            self.exchange()

    def _place(self, load: Load, param: Parameter) -> None:
        """Puts the gradient into its view, zero if there is none. `param.grad` becomes the view."""
        grad, view = param.grad, load.view_of[param]
        if grad is None:
            view.zero_()
            return
        if grad.layout is not torch.strided:
            raise UsageError(f"the gradient of {self._names[param]!r} is sparse: make it dense for attach")
        torch.mul(grad.detach(), self._factor, out=view)
        param.grad = view
        load.placed.add(param)

    def _start_full(self) -> None:
        while self._started < len(self._loads) and self._loads[self._started].full:
            self._start_next()

    def _start_next(self) -> None:
        load = self._loads[self._started]
        self._started += 1
        self._start(load)

    def _start(self, load: Load) -> None:
        load.bucket.marks.fill_(1)
        for index in load.missing():
            load.bucket.marks[index] = self._wire.owes(load.bucket, index)
        load.work = self._wire.start(load.bucket)

    def exchange(self) -> None:
        """Starts what has not started and waits for all. Then every `grad` is the average of all ranks'."""
        try:
            for load in self._loads[self._started :]:
                for index in load.missing():
                    self._place(load, load.params[index])
                self._start_next()
            self._take_all()
        finally:
            self._reset()
        self._wire.settle()
        self.fresh = True

    def _take_all(self) -> None:
        for load in self._loads:
            self._take(load)

    def _take(self, load: Load) -> None:
        assert load.work is not None  # `exchange` has started all
        self._wire.wait(load.work)
        missing = load.missing()
        marks = load.bucket.marks.tolist() if missing else []
        for index in missing:
            if marks[index]:
                load.params[index].grad = load.bucket.views[index]

    def _reset(self) -> None:
        self._open, self._started = False, 0
        for load in self._loads:
            load.placed.clear()
            load.work = None

    def before_step(self) -> None:
        """Exchanges now if there was none since the last step: no backward pass, or only paused ones."""
        if self._open or (not self.fresh and self._wanted()):
            self.exchange()
        self.fresh = False

    def close(self) -> None:
        """Removes the hooks. Gradients become tensors of their own."""
        for hook in self._hooks:
            hook.remove()
        for load in self._loads:
            for param, view in load.view_of.items():
                if param.grad is view:
                    param.grad = view.clone()

    def _twice(self, param: Parameter) -> str:
        return (
            f"{self._names[param]!r} got a second gradient within one backward pass. Either a reentrant "
            "checkpoint runs it twice: use checkpoint(..., use_reentrant=False). Or an earlier backward pass "
            "was broken off by an error: then detach() and attach again, on all ranks"
        )
