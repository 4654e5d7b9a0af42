"""The picture of one step: a line per rank, with who was waited for."""

from __future__ import annotations

import re
from typing import Any

from tests.report.test_report import FACTS, FIGURES
from tweed.report import timeline
from tweed.report.page import render
from tweed.report.plots import svg


def span(what: str, began_s: float, ended_s: float, last: list[Any] | None = None) -> dict[str, Any]:
    return {"what": what, "began_s": began_s, "ended_s": ended_s, "last": last}


STEPS = [
    {"step": 9, "seconds": 0.1, "spans": [span("encode", 0.01, 0.03), span("wait", 0.03, 0.08, [1, "ltp"])]},
    {"step": 9, "seconds": 0.08, "spans": [span("wait", 0.07, 0.074, [0, "tcp"])]},
    None,
]
LAST = [line for line in FIGURES if line["side"] == "tweed"][-1] | {"timeline": STEPS}


def test_a_side_has_the_step_of_its_last_line_that_has_one() -> None:
    assert timeline.of([*FIGURES, LAST]) == STEPS
    assert timeline.of([LAST, *FIGURES]) == STEPS
    assert timeline.of(FIGURES) is None


def test_waits_with_room_name_the_link() -> None:
    text = svg(timeline.draw(STEPS))
    assert re.findall(r">(rank \d, \w+)<", text) == ["rank 1, ltp"]  # the other wait is too short
    assert all(f">rank {rank}<" in text for rank in range(3))
    assert all(f">{what}<" in text for what in timeline.COLOURS)


def test_words_have_the_step_and_the_shares() -> None:
    assert "step 9." in timeline.words(STEPS) and "5% to 50%" in timeline.words(STEPS)
    later = [STEPS[0], {**STEPS[1], "step": 11}]
    assert "steps 9 to 11." in timeline.words(later)


def test_what_was_under_way_lies_below_and_is_hidden_where_nobody_waited() -> None:
    way = [span("under way", 0.0, 0.02), span("under way", 0.01, 0.05), span("wait", 0.04, 0.08)]
    step = {"step": 9, "seconds": 0.1, "spans": way}
    assert "for 50% to 50% of it; for 40% to 40% of it that was hidden" in timeline.words([step])
    assert "under way" not in timeline.words(STEPS)
    assert timeline.COLOURS["under way"] in svg(timeline.draw([step]))


def test_a_page_has_a_picture_of_sides_that_tell() -> None:
    page = render("demo", FACTS, [*FIGURES, LAST])
    assert page.count("<h2>One step: ") == 1 and "<h2>One step: tweed every_step</h2>" in page
    assert "One step" not in render("demo", FACTS, FIGURES)
