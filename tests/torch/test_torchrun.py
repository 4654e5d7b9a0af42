"""Under torchrun: workers that are started again begin anew, in whatever store they get."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.torch.agents import agents


# Of two agents, only the one whose worker has failed counts a restart: the second one's, then the first's.
@pytest.mark.parametrize("number", [1, 2])
def test_workers_that_are_restarted_meet_again(tmp_path: Path, number: int) -> None:
    outputs = agents((number, 2 // number), ("--max-restarts", "2"), (__file__, str(tmp_path)))
    found = {file.name: file.read_text().splitlines() for file in tmp_path.glob("rank *")}
    assert found == {f"rank {rank}": ["[2.0, 2.0, 2.0]"] * 3 for rank in range(2)}, outputs


def work(rank: int, folder: Path) -> None:
    """One of the workers: takes a sum, notes it in its file; rank 1 fails, and in the next life rank 0."""
    dist.init_process_group("tweed", timeout=timedelta(seconds=60))
    total = torch.ones(3)
    dist.all_reduce(total)
    file = folder / f"rank {rank}"
    with file.open("a") as results:
        print(total.tolist(), file=results)
    life = len(file.read_text().splitlines())
    if (life, rank) in ((1, 1), (2, 0)):
        os._exit(3)
    dist.barrier()


if __name__ == "__main__":
    work(int(os.environ["RANK"]), Path(sys.argv[1]))
