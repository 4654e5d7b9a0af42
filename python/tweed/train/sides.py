"""How ranks keep one model: tweed's `attach`, or the peer that it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, Protocol

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

import tweed
from tweed.exchange.communicator import Wait
from tweed.metrics import timeline
from tweed.train.settings import OURS, Settings


class Side(Protocol):
    """A model that is trained together with the other ranks'. What has a body is for sides that tell nothing.

    Attributes:
      module: what the loop calls; its gradients or parameters are kept equal by the side.
      serves: this rank has no data, and takes steps without backward passes.
    """

    module: nn.Module
    serves: bool

    def exchanged(self) -> int:
        """Bytes of this rank's buffers that have gone into all-reduces, with half of those of broadcasts."""

    def waiting(self) -> float | None:
        """Seconds for which training stood still for the network; None if the side does not tell."""
        return None

    def recorded(self) -> AbstractContextManager[None]:
        """Within, a step's waits are noted, if somebody records it and what waits does not note it itself."""
        return nullcontext()

    def delivered(self) -> float | None:
        """Share of this rank's contributions that arrived; None where none can be lost."""
        return None

    def compression(self) -> dict[str, Any] | None:
        """What `compress="auto"` has chosen and what that brings, as in `Stats`."""
        return None

    def averaged(self) -> AbstractContextManager[None]:
        """Within, the model is what is trained, where ranks' own models differ by design."""
        return nullcontext()

    def finish(self) -> None:
        """Makes the model equal on all ranks, if it is not."""
        return

    def state_dict(self) -> dict[str, Any]:
        """The side's own state."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where `state_dict` was taken."""


class Attached:
    """Our side: a plain model with `tweed.attach`."""

    def __init__(self, model: nn.Module, optimizer: Optimizer, strategy: str) -> None:
        self.module = model
        self._run = tweed.attach(model, optimizer, strategy)
        self.serves = self._run.serves
        self.finish = self._run.finish
        self.state_dict = self._run.state_dict
        self.load_state_dict = self._run.load_state_dict

    def exchanged(self) -> int:
        return self._run.stats.bytes_exchanged

    def waiting(self) -> float | None:
        return self._run.stats.waiting_s

    def recorded(self) -> AbstractContextManager[None]:
        return nullcontext()

    def delivered(self) -> float | None:
        stats = self._run.stats
        if not self._run.strategy.may_lose:
            return None
        return 1 - stats.bytes_lost / max(stats.bytes_contributed, 1)

    def compression(self) -> dict[str, Any] | None:
        stats = self._run.stats
        if stats.chosen is None:
            return None
        return {"chosen": stats.chosen, "gain": stats.gain, "break_even_bits": stats.break_even_bits}

    def averaged(self) -> AbstractContextManager[None]:
        return nullcontext() if self._run.strategy.memory is None else self._run.averaged()


class Ddp(Side):
    """The peer: torch's DistributedDataParallel as it comes. It averages every gradient once per step."""

    serves = False

    def __init__(self, model: nn.Module, optimizer: Optimizer) -> None:
        self.module: nn.Module = DistributedDataParallel(model)  # sends parameters and buffers from rank 0
        self._steps = 0
        self._broadcast = _bytes_of([*model.parameters(), *model.buffers()]) // 2
        self._each_step = _bytes_of(param for param in model.parameters() if param.requires_grad)
        self._each_step += _bytes_of(model.buffers()) // 2
        self._optimizer = optimizer
        optimizer.register_step_post_hook(self._count)

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """DDP waits from the last gradient on, until the backward pass returns.

        The hooks are there within a recorded step alone: in others the peer is as it comes.
        """
        if not timeline.records():
            yield
            return
        waits: list[Wait] = []

        def has_gradient(_param: Tensor) -> None:
            waits[:] = [Wait()]

        def has_returned(*_: object) -> None:
            for wait in waits:
                wait.end()

        with ExitStack() as hooks:
            for param in self.module.parameters():
                if param.requires_grad:
                    hook = param.register_post_accumulate_grad_hook(has_gradient)  # type: ignore[no-untyped-call]
                    hooks.callback(hook.remove)
            hooks.callback(self._optimizer.register_step_pre_hook(has_returned).remove)
            yield

    def _count(self, *_: object) -> None:
        self._steps += 1

    def exchanged(self) -> int:
        """Computed from the number of steps, as DDP keeps no count."""
        return self._broadcast + self._steps * self._each_step

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self._steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._steps = state["steps"]


def _bytes_of(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def maker(label: str, settings: Settings) -> Callable[[nn.Module, Optimizer], Side]:
    """What ties a model and its optimizer to the side called `label`."""
    if label == OURS:
        return lambda model, optimizer: Attached(model, optimizer, settings.strategy)
    return Ddp
