"""Links are measured before the schedules are chosen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tweed.collective import NETWORK, plan
from tweed.testbed import run_ranks
from tweed.torch.messages import _LONG_BYTES, Probe, links_of


def test_the_slowest_link_counts() -> None:
    near = Probe([0.001] * 5, [0.002, 0.003])
    far = Probe([0.1, 0.1, 5.0], [0.3, 0.2])
    links = links_of([near, far])
    assert links.latency_s == pytest.approx(0.05)
    assert links.bandwidth == pytest.approx(_LONG_BYTES / 0.1)
    assert not links.shared_memory


def plans(rank: int, size: int, store: str) -> tuple[str | None, float]:
    """The plan of a group over wires, and a sum by it."""
    import torch
    import torch.distributed as dist

    from tweed.torch import Options, plan_json

    place = {"init_method": f"file://{store}", "rank": rank, "world_size": size}
    dist.init_process_group("tweed", pg_options=Options(transport="tcp"), **place)
    one = torch.ones(1)
    dist.all_reduce(one)
    told = plan_json()
    dist.destroy_process_group()
    return told, one.item()


def test_all_ranks_hold_what_rank_0_measured(tmp_path: Path) -> None:
    first, *others = run_ranks(plans, 3, str(tmp_path / "store"))
    assert first[1] == 3
    assert all(other == first for other in others)
    # Loopback is no 1 Gbit/s network, so the assumed figures would have made another plan.
    assert first[0] != plan(3, NETWORK).to_json()
