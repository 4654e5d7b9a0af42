"""What a program may get wrong in silence, and what it is told: each once, by one rank."""

from __future__ import annotations

import logging
import sys
import weakref
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tweed.attach.trained import Trained
from tweed.errors import UsageError

log = logging.getLogger("tweed")

IN_DDP = (
    "{}, which exchanges gradients too, so that each would be exchanged twice. Train through the plain "
    "model; or keep DistributedDataParallel and leave out attach. Members that come and go may have it over "
    "a group of their own process each, and attach it (docs/elastic.md). With Accelerate: leave the model "
    "out of prepare(). Lightning's strategy ddp and Transformers' Trainer wrap the model by themselves: omit "
    "attach there"
)


def refuse_ddp(model: nn.Module, trained: Trained) -> Any:
    """Raises UsageError at the first forward pass of training if DistributedDataParallel runs `model`.

    Returns: the hook's handle.
    """

    def look(module: nn.Module, args: object) -> None:
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return
        handle.remove()
        outer = DistributedDataParallel._get_active_ddp_module()  # type: ignore[no-untyped-call]
        if outer is not None and trained.name_of({*outer.parameters()}) is not None:
            raise UsageError(IN_DDP.format("the attached model runs within DistributedDataParallel"))

    handle = model.register_forward_pre_hook(look)
    return handle


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
