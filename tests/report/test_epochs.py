"""The picture of members over time, and the table of epochs."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.report.test_report import FACTS, FIGURES
from tweed.report import epochs
from tweed.report.epochs import Stay, stays
from tweed.report.page import render
from tweed.report.plots import svg


def entered(epoch: int, seconds: float, keys: str, **more: Any) -> dict[str, Any]:
    """A line of `epochs.jsonl`."""
    line = {"epoch": epoch, "members": len(keys), "rank": 0, "step": 7, "seconds": seconds, "step_s": None}
    return line | {"pause_s": None, "keys": [*keys], "reason": ""} | more


LINES = [
    entered(1, 0.0, "abc"),
    entered(2, 0.1, "ac", step_s=0.25, pause_s=0.125, reason="lost: b"),
    entered(3, 0.3, "acb", step_s=0.05, pause_s=0.01, reason="joined: b"),
]


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (LINES[:1], [("a", 0, 0.0, 1.0), ("b", 1, 0.0, 1.0), ("c", 2, 0.0, 1.0)]),
        (LINES, [("b", 1, 0.0, 0.1), ("a", 0, 0.0, 1.0), ("c", 2, 0.0, 1.0), ("b", 1, 0.3, 1.0)]),
        # Its line is taken when it returns, so it has the first that is free.
        (
            [entered(1, 0.0, "ab"), entered(2, 0.1, "a"), entered(3, 0.2, "ad"), entered(4, 0.3, "adb")],
            [("b", 1, 0.0, 0.1), ("a", 0, 0.0, 1.0), ("d", 1, 0.2, 1.0), ("b", 2, 0.3, 1.0)],
        ),
        # All but one are replaced at once.
        (
            [entered(1, 0.0, "ab"), entered(2, 0.5, "bc")],
            [("a", 0, 0.0, 0.5), ("b", 1, 0.0, 1.0), ("c", 0, 0.5, 1.0)],
        ),
    ],
)
def test_each_stay_has_a_line_of_its_own(
    lines: list[dict[str, Any]], found: list[tuple[str, int, float, float]]
) -> None:
    assert stays(lines, 1.0) == [Stay(line, key, begin, end) for key, line, begin, end in found]


def test_the_picture_names_members_and_epochs() -> None:
    text = svg(epochs.draw(LINES, 1.0))
    names = re.findall(r">([abc])<", text)
    assert sorted(names) == ["a", "b", "b", "c"] and ">epoch<" in text
    assert ">epoch<" not in svg(epochs.draw([entered(n, n / 100, "ab") for n in range(40)], 1.0))


def test_a_page_says_why_members_changed_and_how_long_they_paused() -> None:
    facts = FACTS | {"sides": {"tweed": FACTS["sides"]["tweed"]}}
    text = render("a", facts, FIGURES, entered=LINES)
    assert "Members over time" in text
    assert all(f"<td>{word}</td>" in text for word in ("0.25 s", "0.12 s", "lost: b", "joined: b", "–"))
    for lines in ((), LINES[:1]):
        assert "Members over time" not in render("a", facts, FIGURES, entered=lines)
