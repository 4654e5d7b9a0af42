"""What a report says of the members of a hub."""

from __future__ import annotations

from tweed.report import members


def sent(
    member: int, delay: int, weight: float | None, reason: str = "", score: float | None = None
) -> dict[str, object]:
    return {"member": member, "number": 1, "delay": delay, "weight": weight, "reason": reason, "score": score}


COMMITS = [
    {
        "version": 1,
        "contributions": [sent(0, 0, 1.0, "near", 0.5), sent(3, 2, 0.0, "too far", 9.0)],
        "dropped": [3, 5],
        "keys": {"0": "a" * 64, "3": "b" * 64},
    },
    {
        "version": 2,
        "contributions": [
            sent(0, 3, 0.5, "near", 0.25),
            sent(3, 4, 0.0, "too far", 7.0),
            sent(4, 0, 0.0, "no number"),
        ],
        "dropped": [3],
        "keys": {},
    },
]


def test_a_row_per_member_with_what_counted_and_what_did_not() -> None:
    first, second, third, fourth = members.table(COMMITS)
    assert list(first.values()) == ["0", "aaaaaaaa", "2", "0", "0", "1.5", "3", "0.750"]
    assert list(second.values()) == ["3", "bbbbbbbb", "0", "2", "2", "3.0", "4", "0.000"]
    assert (third["rejected"], third["late"]) == ("1", "0")
    assert list(fourth.values()) == ["5", "", "0", "0", "1", "", "", ""]  # none of its has ever counted


def test_rejections_by_reason_have_their_scores_beside_those_of_what_counted() -> None:
    far, nothing = members.rejections(COMMITS)
    counted = "0.25 to 0.5, median 0.5"
    assert list(far.values()) == ["too far", "2", "3\u00a0(2)", "7 to 9, median 9", counted]
    assert list(nothing.values()) == ["no number", "1", "4\u00a0(1)", "", counted]
    many = [{"version": 1, "contributions": [sent(number, 0, 0.0, "far") for number in range(10)]}]
    assert members.rejections(many)[0]["of members"].endswith("7\u00a0(1), 2 more")


def test_without_verdicts_or_commits_nothing_is_made_up() -> None:
    assert members.table([]) == members.rejections([]) == []
    [row] = members.table([{"version": 1, "contributions": [sent(1, 0, None)]}])
    assert row["mean weight"] == row["key"] == "" and row["counted"] == "1"


def test_the_page_says_of_a_hub_what_holds_for_one() -> None:
    said = " ".join(members.notes({"settings": {"workers": 4}, "test_samples": 1000}))
    assert "dealt into 4 parts" in said and "all-reduce" not in said and "1,000 test samples" in said
