"""What live ranks did over real links, the executor does again, from the files they leave."""

from __future__ import annotations

from pathlib import Path

import pytest

from tweed.simulate import replay
from tweed.testbed import run_ranks


def reduce_and_gather(rank: int, size: int, transport: str, folder: str) -> None:
    """A few operations of different sizes by an engine that keeps traces."""
    import torch
    import torch.distributed as dist

    from tweed.torch import Options

    options = Options(transport=transport, traces=f"{folder}/traces")  # type: ignore[arg-type]
    place = {"init_method": f"file://{folder}/store", "rank": rank, "world_size": size}
    dist.init_process_group("tweed", pg_options=options, **place)
    for numel in (3, 500_000):
        dist.all_reduce(torch.ones(numel))
        dist.all_gather([torch.empty(numel) for _ in range(size)], torch.ones(numel))
        dist.broadcast(torch.ones(numel), 1)
    dist.destroy_process_group()


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_live_runs_replay(transport: str, tmp_path: Path) -> None:
    run_ranks(reduce_and_gather, 3, transport, str(tmp_path))
    replays = [replay(path) for path in sorted((tmp_path / "traces").iterdir())]
    assert {found.rank for found in replays} == {0, 1, 2}
    assert {found.schedule.collective for found in replays} >= {"all_reduce", "all_gather", "broadcast"}
    assert all(found.entries > 0 for found in replays)
