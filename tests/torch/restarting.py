"""One of torchrun's workers: takes a sum, and fails in its first life if it is rank 1.

Run by test_torchrun.py, with the folder for its results: a line per life and rank.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

rank, folder = int(os.environ["RANK"]), Path(sys.argv[1])
dist.init_process_group("tweed", timeout=timedelta(seconds=60))
total = torch.ones(3)
dist.all_reduce(total)
with (folder / f"rank {rank}").open("a") as results:
    print(total.tolist(), file=results)
if rank == 1 and not (folder / "failed").exists():
    (folder / "failed").touch()
    os._exit(3)
dist.barrier()
