"""Imported once, in the fork server: all that a rank would otherwise import for itself.

`import torch` costs about three seconds of CPU, and the first optimizer about as much again. A rank forked
from a process that has done so starts in milliseconds.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
from contextlib import suppress

import numpy as np
import torch
import torch.distributed
import torch.nn.parallel

#: Process that holds the warm imports: the fork server, if it was the one to import this module.
PID = os.getpid()


def threads(pid: int) -> int:
    """Number of threads of process `pid`. A fork copies only one of them, so the server must have one."""
    return len(os.listdir(f"/proc/{pid}/task"))


def _touch() -> None:
    """Runs one step of training, since torch puts off many imports until the first one."""
    layer = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer(torch.from_numpy(np.zeros((1, 2), dtype=np.float32))).sum().detach()
    optimizer.zero_grad()


def _warm() -> None:
    ours = ("tweed.torch.backend", "tweed.group.run", "tweed.hub.run")
    for module in (*ours, "tweed.workloads.tasks.worker"):
        importlib.import_module(module)
    for module in ("torch._dynamo", "numpy.ma"):  # not in every version of torch, of numpy
        with suppress(ImportError):
            importlib.import_module(module)
    _touch()
    gc.collect()
    gc.freeze()  # the collector leaves inherited objects alone: their pages stay shared
    atexit.register(os._exit, 0)  # else some of torch's libraries print about leaks at the end


_warm()
