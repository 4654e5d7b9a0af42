"""monitored_barrier."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import torch.distributed as dist


def program(rank: int, size: int) -> Callable[[], None]:
    return lambda: dist.monitored_barrier(timeout=timedelta(seconds=30))
