"""tweed in processes that Ray has placed: objects, Ray Train, and `ray.util.collective`.

    ref = tweed.ray.put(array); tweed.ray.get(ref).result()   # between tasks, actors and the driver
    TorchTrainer(..., torch_config=tweed.ray.TweedConfig(deadline=10))
    tweed.ray.register_collective_backend()  # then init_collective_group(..., backend="tweed")
    tweed.ray.register_tensor_transport()    # then @ray.method(tensor_transport="tweed")

installed    whether Ray is there, and which
objects/     put, get and reduce between processes that meet, with neither Ray nor torch
job          what the processes of a Ray job leave for each other with Ray: its secret, where they are
meeting      put, get and reduce between the processes of a Ray job
config       TweedConfig: what workers of Ray Train are told before they form a group
collective   the backend of `ray.util.collective`
direct       the tensor transport of Ray Direct Transport, behind Ray's own refs

Nothing here imports Ray before one of its names is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tweed.ray.collective import register_collective_backend as register_collective_backend
    from tweed.ray.config import TweedConfig as TweedConfig
    from tweed.ray.direct import register_tensor_transport as register_tensor_transport
    from tweed.ray.meeting import blocks as blocks
    from tweed.ray.meeting import create as create
    from tweed.ray.meeting import delete as delete
    from tweed.ray.meeting import get as get
    from tweed.ray.meeting import open_objects as open_objects
    from tweed.ray.meeting import put as put
    from tweed.ray.meeting import reduce as reduce
    from tweed.ray.objects import Objects as Objects
    from tweed.ray.objects import Ref as Ref
    from tweed.ray.objects import wait as wait

_MODULES = {
    "Objects": "objects",
    "Ref": "objects",
    "TweedConfig": "config",
    "blocks": "meeting",
    "create": "meeting",
    "delete": "meeting",
    "get": "meeting",
    "open_objects": "meeting",
    "put": "meeting",
    "reduce": "meeting",
    "register_collective_backend": "collective",
    "register_tensor_transport": "direct",
    "wait": "objects",
}

__all__ = [
    "Objects",
    "Ref",
    "TweedConfig",
    "blocks",
    "create",
    "delete",
    "get",
    "open_objects",
    "put",
    "reduce",
    "register_collective_backend",
    "register_tensor_transport",
    "wait",
]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _MODULES[name] != "objects":
        from tweed.ray.installed import require_ray

        require_ray()
    found = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = found  # the next time it is found at once: Ray's version takes a millisecond to look up
    return found
