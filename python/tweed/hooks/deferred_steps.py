"""Steps of a run's optimizers under `cadence=Deferred()`: taken bucket by bucket, when a bucket is read.

Theory of operation. `optimizer.step()` runs once, with its hooks, as do schedulers. A hook before it keeps
the settings, leaves to each `PendingStep` that is under way the groups with its parameters, and takes their
gradients away, so that torch's own code steps the others alone; a hook behind it gives them back. Where a
step cannot be cut so, the hook waits for all gradients, and the step is the ordinary one.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Optimizer
from torch.optim import optimizer as every

from tweed.cadence import Cadence
from tweed.hooks import subset_step
from tweed.hooks.advice import no_check
from tweed.hooks.deferred import DeferredExchange
from tweed.hooks.pending_step import PendingStep

log = logging.getLogger("tweed")
_Args = tuple[Any, ...]
#: Without gradients they take other kernels if no parameter has a class of its own.
_CHOOSES_KERNELS = (nn.MultiheadAttention, nn.TransformerEncoder, nn.TransformerEncoderLayer)
_HOOKS = (2, 2, 1, 0)  # of the run and of these, before and after a step; those on all optimizers


class DeferredSteps:
    """Hooks on the `optimizers` of a run, behind those of the run itself.

    Args:
      optimizers: of the run.
      model: that they step.
      exchange: has what is pending.
    """

    def __init__(self, optimizers: Sequence[Optimizer], model: nn.Module, exchange: DeferredExchange) -> None:
        self._exchange = exchange
        self._taken: list[tuple[Parameter, Tensor | None]] = []
        self._hooks: list[Any] = []
        for one in optimizers:
            self._hooks += [
                one.register_step_pre_hook(self._begins),
                one.register_step_post_hook(self._ends),
                one.register_state_dict_pre_hook(lambda _: exchange.pending.complete()),
                one.register_load_state_dict_pre_hook(lambda *_: exchange.pending.complete()),
            ]

        looks = _BeforeEvaluation(exchange)
        for module in model.modules():
            if module is model or isinstance(module, _CHOOSES_KERNELS):
                self._hooks.append(module.register_forward_pre_hook(looks))

    def remove(self) -> None:
        """Removes the hooks from the optimizers."""
        for hook in self._hooks:
            hook.remove()

    def _begins(self, stepped: Optimizer, args: _Args, kwargs: dict[str, Any]) -> None:
        self._taken = []  # what a step that raised has left
        why = _why_now(stepped, (*args, *kwargs.values()))
        if why is not None:
            say_at_once(why)
            self._exchange.pending.complete()
            return
        groups = subset_step.split(subset_step.kept(stepped), self._pending_of)
        for pending, of_it in groups.items():
            if pending is not None:
                pending.defer(partial(subset_step.step, stepped, of_it))
                self._taken += [(param, param.grad) for group in of_it for param in group["params"]]
        for param, _ in self._taken:
            param.grad = None

    def _pending_of(self, param: Parameter) -> PendingStep | None:
        """What the step of `param` waits for: nothing, if its gradient is one of the program's own."""
        found = self._exchange.pending.of(param)
        if found is not None and not found.waits(param.grad):
            found.complete()
        return found if found is not None and found.under_way else None

    def _ends(self, stepped: Optimizer, args: _Args, kwargs: dict[str, Any]) -> None:
        for param, gradient in self._taken:
            param.grad = gradient
        self._taken = []


class _BeforeEvaluation:
    """Takes the steps that were deferred before a forward pass without gradients, or under `torch.func`.

    Without gradients `MultiheadAttention` and others choose other kernels, which round otherwise, where a
    parameter has a class of its own. `torch.func` reads parameters unseen. A copy of the model, or what is
    stored of it, has a hook that does nothing.
    """

    def __init__(self, exchange: DeferredExchange) -> None:
        self._exchange = exchange

    def __call__(self, module: nn.Module, args: object) -> None:
        """A forward pass begins."""
        if not torch.is_grad_enabled() or torch._C._functorch.peek_interpreter_stack() is not None:
            self._exchange.pending.complete()

    def __reduce__(self) -> tuple[object, ...]:
        return partial, (no_check,)


def defers(cadence: Cadence[Any], model: nn.Module) -> bool:
    """Whether steps of this model wait for readers, as the cadence asks for. Says so if they cannot."""
    why = _why_never(model) if cadence.deferred else None
    if why is not None:
        say_at_once(why)
    return cadence.deferred and why is None


@functools.cache
def say_at_once(why: str) -> None:
    """Says, once for each reason, that steps are not deferred."""
    log.warning("cadence=Deferred(): steps are taken at once, as %s", why)


def _why_never(model: nn.Module) -> str | None:
    """Why no step of this model can wait for whoever reads it; None: it can."""
    for module in model.modules():
        if isinstance(module, torch.jit.ScriptModule):
            return "a scripted module reads its parameters unseen"
        if module._compiled_call_impl is not None or type(module).__name__ == "OptimizedModule":
            return "a compiled module reads its parameters unseen"
    tensors = [*model.parameters(), *model.buffers()]
    if others := {*map(type, tensors)} - {Parameter, Tensor}:
        return f"tensors of class {others.pop().__name__} are read in ways of their own"
    return "parameters share memory: who reads one reads others unseen" if _overlap(tensors) else None


def _overlap(tensors: Sequence[Tensor]) -> bool:
    """Whether two of them have values at the same place."""
    places = sorted(
        (str(one.device), one.data_ptr(), one.data_ptr() + one.nbytes) for one in tensors if one.nbytes
    )
    return any(device == other and end > begin for (device, _, end), (other, begin, _) in pairwise(places))


def _why_now(stepped: Optimizer, args: Sequence[object]) -> str | None:
    """Why this step cannot be taken bucket by bucket, later; None: it can."""
    if any(map(callable, args)):
        return "a closure runs the model within the step"
    if type(stepped) not in subset_step.STEP_EACH_ALONE:
        return f"{type(stepped).__name__} is none of torch's optimizers that step each parameter by itself"
    if getattr(stepped, "grad_scale", None) is not None or getattr(stepped, "found_inf", None) is not None:
        return "a gradient scaler lets the fused optimizer divide by the scale of this moment"
    before, after = stepped._optimizer_step_pre_hooks, stepped._optimizer_step_post_hooks
    before_all, after_all = every._global_optimizer_pre_hooks, every._global_optimizer_post_hooks
    if (len(before), len(after), len(before_all), len(after_all)) != _HOOKS:
        return "hooks of the program on the step may look at parameters"
    return None
