"""tweed in processes that Ray has placed: Ray Train, and `ray.util.collective`.

    TorchTrainer(..., torch_config=tweed.ray.TweedConfig(deadline=10))
    tweed.ray.register_collective_backend()  # then init_collective_group(..., backend="tweed")

installed    whether Ray is there, and which
config       TweedConfig: what workers of Ray Train are told before they form a group
collective   the backend of `ray.util.collective`

Nothing here imports Ray before one of its names is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tweed.ray.collective import register_collective_backend as register_collective_backend
    from tweed.ray.config import TweedConfig as TweedConfig

__all__ = ["TweedConfig", "register_collective_backend"]

_MODULES = {"TweedConfig": "config", "register_collective_backend": "collective"}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tweed.ray.installed import require_ray

    require_ray()
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
