"""What a report says of the members of a hub."""

from __future__ import annotations

from tweed.report import members


def sent(member: int, delay: int, weight: float | None, reason: str = "") -> dict[str, object]:
    return {"member": member, "number": 1, "delay": delay, "weight": weight, "reason": reason}


def test_a_row_per_member_with_what_was_not_believed() -> None:
    commits = [
        {"version": 1, "contributions": [sent(0, 0, 1.0), sent(3, 2, 0.0, "too far")]},
        {"version": 2, "contributions": [sent(0, 3, 0.5), sent(3, 4, 0.0, "too far")]},
    ]
    first, second = members.table(commits)
    assert list(first.values()) == ["0", "2", "1.5", "3", "0.750", "0"]
    assert second["not believed"] == "2: too far" and second["mean delay (commits)"] == "3.0"


def test_without_verdicts_or_commits_nothing_is_made_up() -> None:
    assert members.table([]) == []
    [row] = members.table([{"version": 1, "contributions": [sent(1, 0, None)]}])
    assert row["mean weight"] == ""


def test_the_page_says_of_a_hub_what_holds_for_one() -> None:
    said = " ".join(members.notes({"settings": {"workers": 4}, "test_samples": 1000}))
    assert "dealt into 4 parts" in said and "all-reduce" not in said and "1,000 test samples" in said
