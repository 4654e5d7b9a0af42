"""`tweed reproduce`: folders, going on, and the page; with a system that measures nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from tweed.cli import app
from tweed.errors import UsageError
from tweed.report.notes import Notes
from tweed.report.study import Section, Study, Table
from tweed.systems import SYSTEMS, Headline, System


def experiment(notes: Notes, quick: bool) -> None:
    notes.log("measuring")
    if not notes.has(kind="one"):
        notes.add({"kind": "one", "quick": quick, "times": len(notes.lines)})


def study(lines: object) -> Study:
    return Study(
        "Nothing", "Measures nothing.", [Section("What", tables=[Table("", ["", "x"], [["a", "7"]])])]
    )


@pytest.fixture(autouse=True)
def nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = ModuleType("tweed.systems.nothing")
    vars(module)["SYSTEM"] = System(
        "Nothing", "arXiv 0", "every_step()", experiment, study, Headline("none", "nothing", (), "Never.")
    )
    monkeypatch.setitem(sys.modules, "tweed.systems.nothing", module)
    monkeypatch.setitem(SYSTEMS, "nothing", "measures nothing")
    monkeypatch.chdir(tmp_path)


def run(*words: str) -> str:
    result = CliRunner().invoke(app, ["reproduce", *words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_figures_and_report_are_in_the_folder() -> None:
    said = run("nothing", "--quick")
    assert "Nothing. arXiv 0. Folder: runs/reproduce-nothing\nmeasuring\n" in said
    folder = Path("runs/reproduce-nothing")
    assert Notes(folder).lines == [{"kind": "one", "quick": True, "times": 0}]
    assert "Measures nothing." in (folder / "report.html").read_text()


def test_a_run_goes_on_only_when_asked_and_as_it_was() -> None:
    run("nothing", "--run", "a")
    with pytest.raises(UsageError, match="runs/a is there already: --resume goes on"):
        run("nothing", "--run", "a")
    run("nothing", "--run", "a", "--resume")
    assert len(Notes(Path("runs/a")).lines) == 1
    with pytest.raises(UsageError, match="to go on with"):
        run("nothing", "--run", "a", "--resume", "--quick")
    with pytest.raises(UsageError, match="to go on with"):
        run("nothing", "--run", "b", "--resume")


def test_a_page_gets_the_figures() -> None:
    page = Path("page.md")
    page.write_text("words\n<!-- figures: begin --><!-- figures: end -->\n")
    run("nothing", "--page", "page.md")
    table = "|  | x |\n| --- | ---: |\n| a | 7 |\n"
    assert page.read_text() == f"words\n<!-- figures: begin -->\n### What\n\n{table}<!-- figures: end -->\n"


def test_a_page_is_not_written_while_a_learning_rate_is_at_the_edge() -> None:
    page = Path("page.md")
    page.write_text("<!-- figures: begin --><!-- figures: end -->\n")
    run("nothing", "--run", "a")
    edge = {"kind": "rate", "side": "DDP", "lr": 0.2, "settled": False, "tried": [0.05, 0.1, 0.2]}
    Notes(Path("runs/a")).add(edge)
    with pytest.raises(UsageError, match=r"at the edge .* for DDP \(0.2 of 0.05 to 0.2\)"):
        run("nothing", "--run", "a", "--resume", "--page", "page.md")
    assert page.read_text() == "<!-- figures: begin --><!-- figures: end -->\n"
    assert Path("runs/a/report.html").exists()


def test_an_unknown_system_leaves_no_folder() -> None:
    with pytest.raises(UsageError, match="no system 'everything'"):
        run("everything")
    assert not Path("runs").exists()
