"""Which schedules each group of this process runs, for checkpoints."""

from __future__ import annotations

import torch.distributed as dist

from tweed.collective import Plan

_plans: dict[str, Plan] = {}


def remember(name: str, plan: Plan) -> None:
    """Notes the plan of the group that torch calls `name`."""
    _plans[name] = plan


def plan_json(group: dist.ProcessGroup | None = None) -> str | None:
    """The schedules that `group` runs, as text for a checkpoint; `Options(plan=...)` takes it back.

    Args:
      group: a process group; None is the default group.

    Returns:
      The text; None if the group is not of the backend "tweed".
    """
    plan = _plans.get((group or dist.distributed_c10d._get_default_group()).group_name)
    return None if plan is None else plan.to_json()
