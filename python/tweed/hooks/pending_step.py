"""What waits for one bucket of gradients: whoever reads them, and then whoever reads its parameters.

Theory of operation. A tensor that has no right values yet gets another class, a subclass of its own with
`__torch_function__`. torch calls that before any operation of the tensor, in whatever module, list or thread
it is read. It gives the classes of the bucket back, waits, takes the step if one was deferred, and then calls
the operation:

    begin(...)      the views, which are gradients, wait: clipping and scalers need no list
    defer(step)     the parameters wait too, for the step with the gradients that they have now
    complete()      neither does

Classes are given back before the step, since torch chooses kernels by `type(param)`. What says nothing of
values, such as the shape, is answered at once, and so is `grad`: gradients that are cleared are not waited
for. While autograd accumulates no `__torch_function__` is called: the owner completes before.
"""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, cast
from weakref import WeakSet

import torch
from torch import Tensor
from torch._compile import _disable_dynamo
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.nn import Parameter
from torch.utils._python_dispatch import _disable_current_modes

_no_modes = torch._C.DisableTorchFunction  # such as torch.device("cuda"), where the reader makes tensors

#: Takes a step of the bucket's parameters that have a gradient.
Step = Callable[[], None]

_READ = ("device", "dtype", "grad", "grad_fn", "is_leaf", "layout", "ndim", "requires_grad", "shape")
_WITHOUT_VALUES = {getattr(Tensor, name).__get__ for name in _READ} | {
    cast(Any, Tensor.grad).__set__,
    *(Tensor.dim, Tensor.element_size, Tensor.numel, Tensor.register_hook, Tensor.size),
}


class _Waits:
    """Operations of a tensor of this class wait for `pending` first."""

    __slots__ = ()
    pending: ClassVar[PendingStep]

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        if func in _WITHOUT_VALUES:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        for kind in types:
            if issubclass(kind, _Waits):
                kind.pending.complete()
        return func(*args, **(kwargs or {}))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A copy of what it is then: `Parameter` would make one of the class of now."""
        self.pending.complete()
        return copy.deepcopy(self, memo)


class PendingStep:
    """The exchange of one bucket that is under way, and the step that was deferred until it has ended.

    Args:
      params: of the bucket.

    Attributes:
      failed: what a step that was deferred has raised, so that this rank's model is another one than the
        others'; None: nothing.

    Example:
      >>> weight, average = Parameter(torch.ones(2)), torch.zeros(2)
      >>> pending = PendingStep([weight])
      >>> weight.grad = average
      >>> pending.begin([average], lambda: average.fill_(4))
      >>> pending.defer(lambda: weight.data.sub_(weight.grad))
      >>> weight.grad = None
      >>> weight.tolist(), pending.under_way
      ([-3.0, -3.0], False)
    """

    def __init__(self, params: Sequence[Parameter]) -> None:
        self._params = params
        self._views: Sequence[Tensor] = ()
        self._wait: Callable[[], object] | None = None
        self.failed: BaseException | None = None
        self._steps: list[tuple[Step, list[Tensor | None]]] = []
        self._lock = threading.RLock()

        class PendingParameter(_Waits, Parameter):
            pending = self

        class PendingGradient(_Waits, Tensor):
            pending = self

        self._of_params, self._of_views = PendingParameter, PendingGradient

    @property
    def under_way(self) -> bool:
        """Whether somebody who reads would wait."""
        return self._wait is not None

    def begin(self, views: Sequence[Tensor], wait: Callable[[], object]) -> None:
        """The exchange of the bucket has begun; `wait` returns when its `views` are averages."""
        self._views, self._wait = views, wait
        _become(self._views, self._of_views)

    def defer(self, step: Step) -> None:
        """Takes `step` when the exchange has ended, with the gradients that parameters have now."""
        with self._lock:
            gradients = [param.grad for param in self._params]
            if self._wait is None:  # another thread has just read a gradient
                self._take(step, gradients)
                return
            self._steps.append((step, gradients))
            _become(self._params, self._of_params)

    def waits(self, gradient: Tensor | None) -> bool:
        """Whether this is a gradient of the bucket that is under way, or none at all."""
        return gradient is None or type(gradient) is self._of_views

    @_disable_dynamo
    def complete(self) -> None:
        """Waits, and takes the steps that were deferred.

        Raises: what the wait raises; no step is taken then.
        """
        with self._lock:
            if self._wait is None:  # another thread has just been here
                return
            _become(self._views, Tensor)
            try:
                with _outside((*self._params, *self._views)[0].device):
                    self._wait()  # whose signal handlers may read, and come here too
                    self._give_back()
                    while self._steps:
                        self._take(*self._steps.pop(0))
            finally:
                self.drop()

    def drop(self) -> None:
        """Nothing waits any more, and what was deferred is never taken."""
        self._wait, self._steps = None, []
        self._give_back()

    def _give_back(self) -> None:
        _become(self._views, Tensor)
        _become(self._params, Parameter)

    def _take(self, step: Step, gradients: Sequence[Tensor | None]) -> None:
        now = [param.grad for param in self._params]
        _set(self._params, gradients)
        try:
            step()
        except BaseException as error:
            self.failed = error
            raise
        finally:
            _set(self._params, now)


@contextmanager
def _outside(device: torch.device) -> Iterator[None]:
    """Modes and transforms that the reader has just now do not see what happens within."""
    with (
        _disable_current_modes(),
        temporarily_clear_interpreter_stack(),
        torch.inference_mode(False),
        torch.autocast(device.type, enabled=False),
        _no_modes(),
    ):
        yield


def _become(tensors: Sequence[Tensor], kind: type[Tensor]) -> None:
    for tensor in tensors:
        tensor.__class__ = cast(Any, kind)


def _set(params: Sequence[Parameter], gradients: Sequence[Tensor | None]) -> None:
    for param, gradient in zip(params, gradients, strict=True):
        param.grad = gradient


#: Before a fork nothing may be pending: the child has no links to wait on.
_followed: WeakSet[PendingSteps] = WeakSet()


def _before_fork() -> None:
    for one in list(_followed):
        one.complete()


os.register_at_fork(before=_before_fork)


class PendingSteps:
    """What is pending of all buckets.

    Args:
      params: of each bucket.
    """

    def __init__(self, params: Sequence[Sequence[Parameter]]) -> None:
        self._each = [PendingStep(of_bucket) for of_bucket in params]
        self._of = {param: one for one, here in zip(self._each, params, strict=True) for param in here}
        _followed.add(self)

    def __iter__(self) -> Iterator[PendingStep]:
        return iter(self._each)

    def of(self, param: Parameter) -> PendingStep | None:
        """What waits for the bucket of `param`; None: nothing is under way, or it is in none."""
        found = self._of.get(param)
        return found if found is not None and found.under_way else None

    def complete(self) -> None:
        """Waits for all that is under way, and takes the steps that were deferred."""
        for one in self._each:
            if one.under_way:
                one.complete()

    def drop(self) -> None:
        """Nothing waits any more."""
        for one in self._each:
            one.drop()
