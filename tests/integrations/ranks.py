"""Ranks as torchrun gives them to a framework: by the environment, with a group of tweed's."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tweed.testbed import run_ranks


def needs(framework: str, extra: str = "") -> None:
    """Skips a file of tests where the framework is missing, or tests of frameworks were not asked for.

    Args:
      extra: of tweed's, that has it; empty: that of its name.
    """
    if "TWEED_TEST_INTEGRATIONS" not in os.environ:
        pytest.skip(
            "imports of frameworks take seconds in each rank: make integrations", allow_module_level=True
        )
    pytest.importorskip(
        framework, reason=f"{framework} is missing: pip install 'WHEEL[{extra or framework}]'"
    )


def in_ranks(work: Callable[..., Any], *args: Any) -> list[Any]:
    """What `work(*args)` gives on two ranks, within a group of backend "tweed"."""
    return run_ranks(_rank, 2, work, *args, backend="tweed", timeout=120)


def _rank(rank: int, size: int, work: Callable[..., Any], *args: Any) -> Any:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": "a"}
    os.environ |= {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "HF_HUB_OFFLINE": "1"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "ACCELERATE_USE_CPU": "true"}
    return work(*args)


def values(model: torch.nn.Module) -> list[float]:
    """Its parameters, one after the other."""
    return torch.cat([param.detach().flatten() for param in model.parameters()]).tolist()
