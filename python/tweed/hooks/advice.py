"""What a program may get wrong in silence, and what it is told: each once, by one rank."""

from __future__ import annotations

import logging
import sys
import weakref
from functools import partial

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tweed.errors import UsageError
from tweed.hooks.trained import Trained

log = logging.getLogger("tweed")

IN_DDP = (
    "{}, which exchanges gradients too, so that each would be exchanged twice. Train through the plain "
    "model; or keep DistributedDataParallel and leave out attach. Members that come and go may have it over "
    "a group of their own process each, and attach it (docs/elastic.md). With Accelerate: leave the model "
    "out of prepare(). Lightning's strategy ddp and Transformers' Trainer wrap the model by themselves: omit "
    "attach there"
)


class RefuseDdp:
    """Raises UsageError at the first forward pass of training if DistributedDataParallel runs `model`.

    A copy of the model, or what is stored of it, has a hook that does nothing.
    """

    def __init__(self, model: nn.Module, trained: Trained) -> None:
        self._trained = trained
        self._handle = model.register_forward_pre_hook(self)

    def __call__(self, module: nn.Module, args: object) -> None:
        """A forward pass begins."""
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return
        self.remove()
        outer = DistributedDataParallel._get_active_ddp_module()  # type: ignore[no-untyped-call]
        if outer is not None and self._trained.name_of({*outer.parameters()}) is not None:
            raise UsageError(IN_DDP.format("the attached model runs within DistributedDataParallel"))

    def __reduce__(self) -> tuple[object, ...]:
        return partial, (no_check,)

    def remove(self) -> None:
        """Ends the watch over forward passes."""
        self._handle.remove()


def no_check(module: nn.Module, args: object) -> None:
    """What copies of a model have in the place of `RefuseDdp`."""


class Unfinished:
    """Says at the end of `run`, or of the program, that ranks' models differ, if they do.

    Attributes:
      differ: set by the run: its model may be another one than other ranks'.
    """

    def __init__(self, run: object, strategy: object) -> None:
        self.differ = False
        self._strategy = repr(strategy)
        weakref.finalize(run, self._say)

    def _say(self) -> None:
        failed = getattr(sys, "last_value", None) is not None  # then there are better reasons to look at
        if self.differ and not failed:
            log.warning(
                "the run of %s has ended without run.finish(): each rank has a model of its own. Call "
                "run.finish() on all ranks when training ends, or write `with tweed.attach(...) as run:`",
                self._strategy,
            )
