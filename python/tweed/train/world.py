"""Who started this process."""

from __future__ import annotations

import os


def launched_ranks() -> int | None:
    """Number of ranks if a launcher has started this process as one of them, as torchrun and Ray Train do;
    else None.
    """
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return None
    return int(os.environ["WORLD_SIZE"])


def one_host() -> bool:
    """Whether all workers are known to run on this host."""
    size = launched_ranks()
    return size is None or os.environ.get("LOCAL_WORLD_SIZE") == str(size)
