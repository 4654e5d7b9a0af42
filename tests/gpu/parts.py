"""What is checked on a device: parts, each of which is a file, and their cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tests.gpu import codecs, frameworks, operations, strategies, streams

#: `check(case, rank, size, device)` gives values that are the same on every device, to rounding.
Check = Callable[[str, int, int, torch.device], Any]

GROUPS = ("tweed", "gloo", "nccl")


@dataclass(frozen=True, slots=True)
class Part:
    """Cases of one kind.

    Attributes:
      name: the name of its file.
      check: runs one case on one rank.
      cases: all of them, in their order.
      quick: those that the tests run on the CPU.
      limit_s: cases that have not begun after so many seconds are not run.
      backends: of the process group that a case runs in, one after the other; "": no group.
      ranks: how many run it.
    """

    name: str
    check: Check
    cases: Sequence[str]
    quick: Sequence[str]
    limit_s: float
    backends: Sequence[str] = GROUPS
    ranks: int = 2


#: What the exchanges rest on comes first.
PARTS = (
    Part("operations", operations.check, operations.CASES, operations.QUICK, 90),
    Part("streams", streams.check, streams.CASES, streams.CASES, 45),
    Part("codecs", codecs.check, codecs.CASES, codecs.QUICK, 30, ("",), 1),
    Part("strategies", strategies.check, strategies.CASES, strategies.QUICK, 120),
    Part("frameworks", frameworks.check, frameworks.CASES, frameworks.QUICK, 150),
)
