"""Plans from outside, and which schedules each group of this process runs, for checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch.distributed as dist

from tweed.collective import Plan
from tweed.errors import UsageError

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


def stored(given: str, overrules: Mapping[str, str]) -> Plan:
    """The plan that a user has given.

    Args:
      given: the text of a plan, or the path of a file that holds one.
      overrules: builders by collective that were asked for besides.

    Raises:
      UsageError: there is no such file, it is no plan, or it has other builders than those asked for.
    """
    plan = Plan.from_json(given) if given.lstrip().startswith("{") else _in_file(given)
    for pick in plan.picks:
        asked = overrules.get(pick.collective, pick.builder)
        if asked != pick.builder:
            raise UsageError(
                f"the plan has '{pick.builder}' for {pick.collective}, but '{asked}' was asked for (by "
                "schedule=, by a server, or by transport 'ltp'); leave the plan away, or what it contradicts"
            )
    return plan


def _in_file(path: str) -> Plan:
    try:
        return Plan.from_json(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"the plan {path} cannot be read: {error.strerror}; `tweed plan` makes one with --out"
        ) from error
    except (UsageError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from None
