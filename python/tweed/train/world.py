"""Who started this process."""

from __future__ import annotations

import os


def torchrun_size() -> int | None:
    """Number of ranks if torchrun, or something like it, has started this process; else None."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return None
    return int(os.environ["WORLD_SIZE"])


def one_host() -> bool:
    """Whether all workers are known to run on this host."""
    size = torchrun_size()
    return size is None or os.environ.get("LOCAL_WORLD_SIZE") == str(size)
