"""tweed trains PyTorch models across machines whose network is slow, lossy, uneven or untrusted.

    import tweed, torch.distributed as dist
    dist.init_process_group("tweed")                       # a backend: DDP, FSDP2, DTensor run unchanged
    run = tweed.attach(model, optimizer, "every_step")     # one line in any training loop

This is the public list. Importing it is light: torch and the extension module are loaded at the first use of
a name that needs them.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING

from tweed.attach import attach
from tweed.errors import (
    Aborted,
    DataError,
    DeadlineExceeded,
    ForkedProcess,
    PeerLost,
    ScheduleError,
    ShapeMismatch,
    StrategyError,
    TweedError,
    UsageError,
)
from tweed.hub.serve import serve
from tweed.recipes import RECIPES, every_step, local_steps, ltp
from tweed.recipes.named import named_strategies, named_strategy
from tweed.strategy import Strategy

if TYPE_CHECKING:
    from tweed.collective import Schedule, Send, Topology
    from tweed.exchange.communicator import Stats
    from tweed.hooks.run import Run
    from tweed.hub.process_run import HubRun
    from tweed.torch import Options, empty

__all__ = [
    "Aborted",
    "DataError",
    "DeadlineExceeded",
    "ForkedProcess",
    "HubRun",
    "Options",
    "PeerLost",
    "Run",
    "Schedule",
    "ScheduleError",
    "Send",
    "ShapeMismatch",
    "Stats",
    "Strategy",
    "StrategyError",
    "Topology",
    "TweedError",
    "UsageError",
    "attach",
    "empty",
    "every_step",
    "local_steps",
    "ltp",
    "named_strategies",
    "named_strategy",
    "serve",
]

#: Public names that need torch or the extension module, and where they are.
_LAZY = {
    "HubRun": "tweed.hub.process_run",
    "Options": "tweed.torch",
    "Run": "tweed.hooks.run",
    "Schedule": "tweed.collective",
    "Send": "tweed.collective",
    "Stats": "tweed.exchange.communicator",
    "Topology": "tweed.collective",
    "empty": "tweed.torch",
}

#: Folders that can be used without importing them by name: `tweed.collective.build(...)`.
_FOLDERS = ("collective", "elastic", "metrics", "ray", "server", "simulate", "testbed", "torch", "transport")


def __getattr__(name: str) -> object:
    if name in _FOLDERS:
        return importlib.import_module(f"tweed.{name}")
    if name in {make.__name__ for make in RECIPES}:
        words = f"attach takes the name {name!r} as a text, and tweed.recipes.{name}() is the strategy"
        raise AttributeError(f"module 'tweed' has no attribute {name!r}; {words}")
    if name not in _LAZY:
        raise AttributeError(f"module 'tweed' has no attribute {name!r}")
    found: object = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__


def _register_backend() -> None:
    """Makes torch know the backend, unless torch will do so by itself when it is imported."""
    autoload = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "1"
    if "torch" in sys.modules or not autoload:
        from tweed.torch import register

        register()


_register_backend()
