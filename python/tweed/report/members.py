"""The members of a hub, from what it has committed: how much came of each, how old, and what was rejected."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import mean
from typing import Any

Line = Mapping[str, Any]
_KEY = 8  # letters of a key that tell members apart
_MOST = 8  # members that are named beside a reason


def table(commits: Sequence[Line]) -> list[dict[str, str]]:
    """A row per member, by number: what came of its contributions, their delay in commits, and their weight.
    Empty if there were no commits.

    Args:
      commits: lines of `commits.jsonl`.
    """
    by_member: dict[int, list[Line]] = defaultdict(list)
    for one in _contributions(commits):
        by_member[one["member"]].append(one)
    late = Counter(member for commit in commits for member in commit.get("dropped", ()))
    keys = {int(member): key for commit in commits for member, key in commit.get("keys", {}).items()}
    members = sorted({*by_member, *late})
    return [_row(member, keys.get(member, ""), by_member[member], late[member]) for member in members]


def rejections(commits: Sequence[Line]) -> list[dict[str, str]]:
    """A row per reason for which contributions came to nothing, the most frequent one first: how many, whose,
    and what the rule went by, beside what it went by where it believed. Empty if all counted."""
    by_reason: dict[str, list[Line]] = defaultdict(list)
    believed = []
    for one in _contributions(commits):
        if one["weight"] == 0:
            by_reason[one["reason"]].append(one)
        else:
            believed.append(one)
    found = sorted(by_reason.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    return [_reason(reason, some, believed) for reason, some in found]


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
        "A contribution is late if it was dropped before it moved, as the model that it was computed on was "
        "too old; it is rejected if it came and its rule gave it no weight.",
    ]


def _contributions(commits: Iterable[Line]) -> Iterator[Line]:
    return (one for commit in commits for one in commit["contributions"])


def _row(member: int, key: str, sent: Sequence[Line], late: int) -> dict[str, str]:
    delays = [one["delay"] for one in sent]
    weights = [one["weight"] for one in sent if one["weight"] is not None]
    rejected = sum(weight == 0 for weight in weights)
    return {
        "member": str(member),
        "key": key[:_KEY],
        "counted": f"{len(sent) - rejected:,}",
        "rejected": f"{rejected:,}",
        "late": f"{late:,}",
        "mean delay (commits)": f"{mean(delays):.1f}" if delays else "",
        "longest": str(max(delays, default="")),
        "mean weight": f"{mean(weights):.3f}" if weights else "",
    }


def _reason(reason: str, rejected: Sequence[Line], believed: Sequence[Line]) -> dict[str, str]:
    by_member = Counter(one["member"] for one in rejected)
    most = [f"{member}\u00a0({count:,})" for member, count in by_member.most_common(_MOST)]
    more = [f"{len(by_member) - _MOST:,} more"] if len(by_member) > _MOST else []
    return {
        "reason": reason,
        "contributions": f"{len(rejected):,}",
        "of members": ", ".join(most + more),
        "scores": _span(rejected),
        "scores of what counted": _span(believed),
    }


def _span(some: Sequence[Line]) -> str:
    """From the lowest score to the highest, and the median; empty where the rule goes by none."""
    scores = sorted(one["score"] for one in some if one.get("score") is not None)
    if not scores:
        return ""
    return f"{scores[0]:.3g} to {scores[-1]:.3g}, median {scores[len(scores) // 2]:.3g}"
