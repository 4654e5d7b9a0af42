"""What programs under torchrun share: a step of training, and where its results go."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import torch.distributed as dist


def begin() -> int:
    """Makes the default group of the backend that the command line names; gives this rank."""
    dist.init_process_group(sys.argv[1])
    return dist.get_rank()


def folder() -> Path:
    """Where ranks may leave files."""
    return Path(sys.argv[2])


def end(values: Iterable[float]) -> None:
    """Notes what this rank found, and leaves."""
    (folder() / f"rank {dist.get_rank()}").write_text(" ".join(map(str, values)))
    dist.destroy_process_group()


def first_life() -> bool:
    """Whether torchrun has not started the workers again yet, as far as rank 1 has noted."""
    return not (folder() / "failed").exists() and "TORCHELASTIC_RUN_ID" in os.environ
