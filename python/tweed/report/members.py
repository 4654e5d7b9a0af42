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


def notes(facts: Mapping[str, Any]) -> list[str]:
    """What to keep in mind when reading the figures of a hub.

    Args:
      facts: contents of `run.json`.
    """
    settings = facts["settings"]
    return [
        f"The data was dealt into {settings['workers']} parts. Where members ran, and how many shared a "
        "machine, is not known to the hub.",
        "Steps are commits of the hub. Time counts from the first one on, the hub's evaluations included, "
        "and what was lost when it was started again left out.",
        "Samples are those of the contributions that were committed.",
        "Bytes are those of contributions and models that crossed, divided by the members that ever came; "
        "heads of messages and retransmissions are not in them.",
        f"Accuracy and test loss are over the first {facts['test_samples']:,} test samples.",
    ]


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
