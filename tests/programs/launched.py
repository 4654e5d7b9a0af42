"""What programs under torchrun share: a step of training, and where its results go."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import torch.distributed as dist

_began = time.perf_counter()


def begin() -> int:
    """Makes the default group of the backend that the command line names; gives this rank."""
    global _began
    _began = time.perf_counter()
    dist.init_process_group(sys.argv[1])
    return dist.get_rank()


def folder() -> Path:
    """Where ranks may leave files."""
    return Path(sys.argv[2])


def end(values: Iterable[float]) -> None:
    """Notes how long it took from `begin`, and what this rank found; and leaves."""
    found = list(values)
    text = " ".join(map(str, [time.perf_counter() - _began, *found]))
    (folder() / f"rank {dist.get_rank()}").write_text(text)
    dist.destroy_process_group()


def first_life() -> bool:
    """Whether torchrun has not started the workers again yet, as far as rank 1 has noted."""
    return not (folder() / "failed").exists() and "TORCHELASTIC_RUN_ID" in os.environ
