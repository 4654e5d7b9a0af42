"""The schedules that a group runs: told, stored, and taken back."""

from __future__ import annotations

from pathlib import Path

from tweed.collective import ONE_HOST, Plan, plan
from tweed.testbed import run_ranks


def stored_plan(rank: int, size: int, store: str, text: str) -> str | None:
    """What a group says of its plan when it was given `text`."""
    import torch.distributed as dist

    from tweed.torch import Options, plan_json

    # Only rank 0 holds the plan: the others must receive it.
    options = Options(plan=text) if rank == 0 else None
    place = {"init_method": f"file://{store}", "rank": rank, "world_size": size}
    dist.init_process_group("tweed", pg_options=options, **place)
    told = plan_json()
    dist.destroy_process_group()
    return told


def test_a_stored_plan_is_every_ranks_plan(tmp_path: Path) -> None:
    unusual = plan(2, ONE_HOST, {"all_reduce": "ring", "broadcast": "star"}).to_json()
    assert run_ranks(stored_plan, 2, str(tmp_path / "store"), unusual) == [unusual, unusual]


def test_a_plan_for_other_ranks_is_left_alone(tmp_path: Path) -> None:
    for_five = plan(5, ONE_HOST).to_json()
    told = run_ranks(stored_plan, 2, str(tmp_path / "store"), for_five)
    assert [Plan.from_json(text or "").ranks for text in told] == [2, 2]
