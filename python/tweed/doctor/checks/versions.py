"""Versions of tweed and torch, and whether torch will ask tweed at all."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from tweed import distribution
from tweed.doctor.finding import Finding, Level
from tweed.torch import build

_OLDEST = (2, 10)
_OFF = ("", "0", "false")


@dataclass(frozen=True, slots=True)
class Facts:
    """Versions, None where the package is missing; `torchcomms`, `autoload`: torch's variables, as set."""

    tweed: str | None
    torch: str | None
    python: str
    system: str = "Linux"
    torchcomms: str = "0"
    autoload: str = "1"
    engine: str | None = None


def gather() -> Facts:
    """Reads versions; loads the engine, not torch."""
    return Facts(
        tweed=distribution.version(),
        torch=torch(),
        python=platform.python_version(),
        system=platform.system(),
        torchcomms=os.environ.get("TORCH_DISTRIBUTED_USE_TORCHCOMMS", "0"),
        autoload=os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1"),
        engine=_engine(),
    )


def torch() -> str | None:
    """Version of torch, with the part that says how it was built; None if it is not installed."""
    try:
        return str(build.torch_version().__version__)
    except (ModuleNotFoundError, OSError):
        return None


def _engine() -> str | None:
    try:
        from tweed import _core  # noqa: F401
    except ImportError as error:
        return str(error)
    return None


def judge(facts: Facts) -> Iterator[Finding]:
    """What is missing or too old, and what makes torch pass tweed by."""
    if facts.system != "Linux":
        yield Finding(Level.ERROR, f"tweed runs on Linux, and this is {facts.system}", "take a Linux host")
    if facts.engine is not None:
        what = f"tweed's engine cannot be loaded: {facts.engine}"
        yield Finding(Level.ERROR, what, f"in tweed's folder: make build PYTHON={sys.executable}")
    if facts.torch is None:
        yield Finding(Level.ERROR, "torch is not installed", "pip install 'torch>=2.10'")
    elif _number(facts.torch) < _OLDEST:
        what = f"torch {facts.torch} is too old: tweed needs 2.10 or later"
        yield Finding(Level.ERROR, what, "pip install 'torch>=2.10'")
    else:
        what = f"tweed {facts.tweed or '(not installed)'}, torch {facts.torch}, Python {facts.python}"
        yield Finding(Level.OK, what)
    if facts.torchcomms.lower() not in _OFF:
        what = (
            f"TORCH_DISTRIBUTED_USE_TORCHCOMMS={facts.torchcomms}: some versions of torch then give all "
            "groups to TorchComms, which does not know the backend tweed"
        )
        yield Finding(Level.WARNING, what, "unset TORCH_DISTRIBUTED_USE_TORCHCOMMS")
    if facts.autoload != "1":
        what = (
            f"TORCH_DEVICE_BACKEND_AUTOLOAD={facts.autoload}: torch does not find the backend tweed by itself"
        )
        yield Finding(Level.NOTE, what, "unset it, or write `import tweed` in the program")


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
