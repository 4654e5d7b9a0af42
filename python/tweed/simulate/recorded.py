"""A workload recorded from a real model: each layer's bytes of gradient, and when they are there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from tweed.errors import UsageError
from tweed.simulate.workload import Layer, Workload


class Recording:
    """Times of one backward pass; see `recorded`."""

    def __init__(self, model: nn.Module, clock: Callable[[], float]) -> None:
        self._model = model
        self._clock = clock
        self._started_s = clock()
        self._forward_s: float | None = None
        self._ready_s: dict[str, float] = {}
        self._numbytes: dict[str, int] = {}

    def workload(self, name: str) -> Workload:
        """What was seen; layers are modules with weights of their own, in the reverse of the order seen.

        Raises: UsageError if no backward pass was seen.
        """
        if self._forward_s is None or not self._ready_s:
            raise UsageError("nothing was recorded: run the model and backward() inside `recorded`")
        layers, before = [], self._forward_s
        for layer, at in sorted(self._ready_s.items(), key=lambda item: item[1]):
            layers.append(Layer(layer, self._numbytes[layer], at - before))
            before = at
        return Workload(name, tuple(reversed(layers)), self._forward_s, "recorded here")

    def _hooks(self) -> Iterator[torch.utils.hooks.RemovableHandle]:
        yield self._model.register_forward_hook(self._after_forward)
        for name, param in self._model.named_parameters():
            if param.requires_grad:
                hook = param.register_post_accumulate_grad_hook(self._on_gradient(name))  # type: ignore[no-untyped-call]
                yield hook

    def _after_forward(self, *_: object) -> None:
        self._forward_s = self._now(next(self._model.parameters()))

    def _on_gradient(self, name: str) -> Callable[[Tensor], None]:
        layer = name.rpartition(".")[0] or name

        def ready(param: Tensor) -> None:
            self._ready_s[layer] = self._now(param)
            self._numbytes[layer] = self._numbytes.get(layer, 0) + param.numel() * param.element_size()

        return ready

    def _now(self, where: Tensor) -> float:
        """Seconds since the start, when all that was asked of the device is done."""
        if where.is_cuda:
            torch.cuda.synchronize(where.device)
        return self._clock() - self._started_s


@contextmanager
def recorded(model: nn.Module, clock: Callable[[], float] = time.perf_counter) -> Iterator[Recording]:
    """Records one step of a model that nothing is attached to; a step or two before it warms the caches.

        with recorded(model) as recording:
            loss(model(x), y).backward()
        workload = recording.workload("mine")          # for `tweed.simulate.workload.step`

    The forward pass is what lies between the start and the end of the model's forward; a layer's time is what
    lies between the gradients of the layer behind it and its own. On a GPU every gradient is waited for, and
    the pass takes somewhat longer than usual.
    """
    recording = Recording(model, clock)
    hooks = list(recording._hooks())
    try:
        yield recording
    finally:
        for hook in hooks:
            hook.remove()
