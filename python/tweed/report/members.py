"""The members of a hub, from what it has committed: how much came of each, how old, and what counted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any


def table(commits: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """A row per member, by number: contributions, their delay in commits, their weight, and how many counted
    for nothing, with the reason that was given most often. Empty if there were no commits.

    Args:
      commits: lines of `commits.jsonl`.
    """
    by_member: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for commit in commits:
        for one in commit["contributions"]:
            by_member[one["member"]].append(one)
    return [_row(member, by_member[member]) for member in sorted(by_member)]


def _row(member: int, sent: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    delays = [one["delay"] for one in sent]
    weights = [one["weight"] for one in sent if one["weight"] is not None]
    refused = Counter(one["reason"] for one in sent if one["weight"] == 0)
    why = f": {refused.most_common(1)[0][0]}" if refused else ""
    return {
        "member": str(member),
        "contributions": str(len(sent)),
        "mean delay (commits)": f"{mean(delays):.1f}",
        "longest": str(max(delays)),
        "mean weight": f"{mean(weights):.3f}" if weights else "",
        "not believed": f"{refused.total()}{why}",
    }
