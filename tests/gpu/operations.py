"""Every operation of a process group, on tensors of the device: the programs of tests/programs/operations."""

from __future__ import annotations

from typing import Any

import torch

from tests.gpu.programs import first_steps, named

CASES = named("operations")
QUICK = ("operations.all_reduce", "operations.all_to_all")


def check(case: str, rank: int, size: int, device: torch.device) -> Any:
    """What the first steps of the program give."""
    return first_steps(case, rank, size, device)
