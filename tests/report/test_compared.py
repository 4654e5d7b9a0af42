"""Stored runs beside each other on one page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.report.test_report import FACTS, FIGURES, MEASURED, SHAPED
from tweed.cli import app
from tweed.errors import UsageError
from tweed.report import compared

OTHER = FACTS | {
    "settings": FACTS["settings"] | {"strategy": "local_steps:8", "lr": 0.1},
    "sides": {"tweed": "tweed local_steps:8"},
}


def test_sides_of_all_runs_are_on_the_page_and_what_differs() -> None:
    page = compared.render({"a": FACTS, "b": OTHER}, {"a": FIGURES, "b": FIGURES})
    for words in ("a: tweed every_step", "a: PyTorch DDP on Gloo", "b: tweed local_steps:8"):
        assert page.count(words) > 5  # in both tables and in each plot
    assert "To the same accuracy: 90.00%" in page
    rows = {row["side"]: row for row in compared.differences({"a": FACTS, "b": OTHER})}
    assert rows == {
        "strategy": {"side": "strategy", "a": "every_step", "b": "local_steps:8"},
        "lr": {"side": "lr", "a": "0.05", "b": "0.1"},
    }
    assert "Nothing: settings, versions and machines are the same." in compared.render(
        {"a": FACTS, "b": FACTS}, {"a": FIGURES, "b": FIGURES}
    )


def test_bytes_are_those_that_all_runs_have() -> None:
    both = compared.render({"a": SHAPED, "b": SHAPED}, {"a": MEASURED, "b": MEASURED})
    assert "measured at its link" in both and "MB, computed" not in both
    mixed = compared.render({"a": SHAPED, "b": FACTS}, {"a": MEASURED, "b": FIGURES})
    assert "MB, computed" in mixed and "measured at its link" not in mixed
    assert "plots show what is computed of all" in mixed


def test_runs_of_another_machine_say_so() -> None:
    other = FACTS | {"machine": FACTS["machine"] | {"cores": 64}}
    page = compared.render({"a": FACTS, "b": other}, {"a": FIGURES, "b": FIGURES})
    assert "times are not to be compared" in page


def test_what_cannot_be_compared_is_refused_by_name() -> None:
    other = FACTS | {"settings": FACTS["settings"] | {"task": "shakespeare"}}
    with pytest.raises(
        UsageError, match="a trains digits and tests on 359 samples, and b trains shakespeare"
    ):
        compared.render({"a": FACTS, "b": other}, {"a": FIGURES, "b": FIGURES})
    with pytest.raises(UsageError, match="run b has told no figures yet"):
        compared.render({"a": FACTS, "b": FACTS}, {"a": FIGURES, "b": []})
    with pytest.raises(UsageError, match="two runs or more"):
        compared.write([Path("a")], Path("out"))


def test_the_command_writes_one_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, facts in {"a": FACTS, "b": OTHER}.items():
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps(facts))
        (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in FIGURES))
    told = CliRunner().invoke(app, ["report", "--compare", "a", "runs/b"])
    assert told.exit_code == 0 and "runs/compared.html" in told.output
    assert "b: tweed local_steps:8" in (tmp_path / "runs" / "compared.html").read_text()
    assert "Report: runs/a/report.html" in CliRunner().invoke(app, ["report", "a"]).output
    refused = CliRunner().invoke(app, ["report", "a", "b"])
    assert isinstance(refused.exception, UsageError)
