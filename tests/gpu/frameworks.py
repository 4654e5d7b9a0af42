"""DDP, FSDP2 and what goes with them, on models of the device: programs of tests/programs."""

from __future__ import annotations

from typing import Any

import torch

from tests.gpu.programs import first_steps, named

CASES = named("ddp", "sharded", "groups")
QUICK = ("ddp.stock", "sharded.fsdp2")


def check(case: str, rank: int, size: int, device: torch.device) -> Any:
    """What the first steps of the program give."""
    return first_steps(case, rank, size, device)
