"""Three of the programs run here; all of them by `make programs`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.programs.page import Line, render
from tests.programs.run import Compared, Outcome, agree, once
from tests.programs.table import Row, rows

ROWS = {row.name: row for row in rows()}
WORKS = Outcome("", [1.0])
ROW = Row("ddp.one", "a program", 2, 0, (), "")


def test_there_are_enough_programs_and_each_says_what_it_is() -> None:
    assert len(ROWS) >= 30
    assert [name for name, row in ROWS.items() if not row.title] == []


@pytest.mark.parametrize("name", ["ddp.stock", "operations.all_to_all_single", "groups.split_group"])
def test_a_program_gives_the_same_over_both(name: str) -> None:
    gloo, tweed = (once(ROWS[name], backend) for backend in ("gloo", "tweed"))
    assert (gloo.failed, tweed.failed) == ("", "")
    assert gloo.values and agree(gloo, tweed)


def test_what_fails_over_tweed_alone_needs_a_reason() -> None:
    broken = Line(ROW, Compared(WORKS, Outcome("Error: no", []), []))
    assert "Error: no" in broken.trouble()
    assert replace(broken, row=replace(ROW, why="so")).trouble() == ""
    assert Line(ROW, Compared(Outcome("no", []), Outcome("no", []), [])).trouble() == ""
    assert "other numbers" in Line(ROW, Compared(WORKS, Outcome("", [2.0]), [])).trouble()


def test_the_page_counts_and_marks_what_is_slow() -> None:
    fast, slow = [(2.0, 1.0)] * 3, [(1.0, 1.2), (1.0, 1.5), (1.0, 4.0)]
    lines = [
        Line(ROW, Compared(WORKS, WORKS, fast)),
        Line(replace(ROW, why="so"), Compared(WORKS, WORKS, slow)),
    ]
    text = render(lines, 3, "here")
    assert "2 rows: 2 work over Gloo, 2 over tweed. 1 of 2 ratios are above 1.1;" in text
    assert "| 2.00 s | 0.50 | 0.50 to 0.50 |  |" in text
    assert "| 1.00 s | **1.50** | 1.20 to 4.00 | so |" in text
