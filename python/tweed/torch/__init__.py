"""The torch backend "tweed": `init_process_group("tweed")` is all a user needs, as torch finds `register`.

Light on purpose: torch runs `register` while it is being imported, whether or not tweed is used later.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tweed.exchange.stages import Cut as Cut
    from tweed.torch.backend import plan_json as plan_json
    from tweed.torch.hooks import compression as compression
    from tweed.torch.memory import empty as empty
    from tweed.torch.options import Options as Options
    from tweed.torch.sharded import sharded_compression as sharded_compression
    from tweed.torch.stages import stage_link as stage_link
    from tweed.torch.urgency import set_urgency as set_urgency

__all__ = [
    "Cut",
    "Options",
    "compression",
    "empty",
    "plan_json",
    "register",
    "set_urgency",
    "sharded_compression",
    "stage_link",
    "torchrun_handler",
]


def register() -> None:
    """Makes the backend known to torch.distributed. Cheap, and harmless when repeated.

    Called by torch itself through the entry point `torch.backends`, unless `TORCH_DEVICE_BACKEND_AUTOLOAD=0`.
    """
    import torch.distributed as dist

    if not dist.is_available() or hasattr(dist.Backend, "TWEED"):
        return
    from tweed.exchange.engine import provide_settings

    provide_settings(_settings)
    _explain_torchcomms(dist)
    dist.Backend.register_backend("tweed", _create, extended_api=True, devices=["cpu", "cuda"])


def torchrun_handler() -> Callable[[Any], Any]:
    """The rendezvous of `torchrun --rdzv-backend tweed`, for torch's entry point group `torchrun.handlers`.

    Torch asks for it while `torch.distributed.elastic.rendezvous` is being imported, so what imports that is
    imported by the first call.
    """

    def create(params: Any) -> Any:
        from tweed.torch.torchrun import TweedRendezvous

        return TweedRendezvous(params)

    return create


def _explain_torchcomms(dist: Any) -> None:
    """Says why this backend is never asked where TorchComms takes every name (torch 2.13 and thereabouts)."""
    asked = os.environ.get("TORCH_DISTRIBUTED_USE_TORCHCOMMS", "0").lower() not in ("", "0", "false")
    if asked and not hasattr(dist.distributed_c10d, "_torchcomms_handles_backend"):
        logging.getLogger("tweed").warning(
            "TORCH_DISTRIBUTED_USE_TORCHCOMMS is set: this torch gives all process groups to TorchComms, "
            "which does not know the backend 'tweed'. Unset it to use tweed"
        )


def _settings() -> list[str]:
    from tweed.torch.rendezvous import settings

    return settings()


def _create(given: object, options: object) -> Any:
    from tweed.torch.backend import create

    return create(given, options)


#: The module of each public name. They load torch, so each is imported when somebody asks for it.
_MODULES = {
    "Cut": "stages",
    "Options": "options",
    "compression": "hooks",
    "empty": "memory",
    "plan_json": "backend",
    "set_urgency": "urgency",
    "sharded_compression": "sharded",
    "stage_link": "stages",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
