"""The command `tweed doctor`: exit codes, words, JSON, wrong use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tweed.cli import app
from tweed.doctor import CHECKS, together
from tweed.doctor.finding import Finding, Level
from tweed.doctor.matrix import Link, Matrix, Member
from tweed.doctor.show import summary
from tweed.doctor.together import Report
from tweed.errors import UsageError

FIX = "sudo sysctl -w " + " ".join(f"net.core.very_long_name_{number}=8388608" for number in range(9))
BAD, GOOD = Finding(Level.ERROR, "what is bad", FIX, "udp"), Finding(Level.OK, "fine", "", "tcp")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TWEED_HOST"):
        monkeypatch.delenv(name, raising=False)


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["doctor", *words])


def finds(monkeypatch: pytest.MonkeyPatch, *found: Finding) -> None:
    monkeypatch.setattr("tweed.doctor.examine", lambda: list(found))


def test_looks_at_this_host(tmp_path: Path) -> None:
    done = run("--json", "--output", str(tmp_path / "report.json"))
    report = json.loads(done.output)
    levels = {finding["level"] for finding in report["findings"]}
    assert done.exit_code == (1 if "error" in levels else 0)
    assert {finding["subject"] for finding in report["findings"]} == {check.name for check in CHECKS}
    assert report["matrix"] is None
    assert json.loads((tmp_path / "report.json").read_text()) == report


def test_the_worst_comes_first_and_fixes_are_not_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    finds(monkeypatch, GOOD, BAD)
    done = run()
    lines = done.output.splitlines()
    assert done.exit_code == 1
    assert lines[0].split() == ["error", "udp", "what", "is", "bad"]
    assert lines[1].strip() == f"> {FIX}"
    assert lines[-1] == "1 error, 1 in order"


def test_without_errors_the_code_is_0(monkeypatch: pytest.MonkeyPatch) -> None:
    finds(monkeypatch, GOOD, Finding(Level.WARNING, "hm", "do", "tcp"))
    assert run().exit_code == 0


def test_shows_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    members = tuple(Member(rank, "box", "192.0.2.1:5", "1", "2", 0.25 * rank, 0.0) for rank in range(2))
    links = (Link(0, 1, "tcp", 1.25e7, 1e-3, 2e-3, 9e-3, 14480, 1),)
    report = Report((GOOD,), Matrix(members, links))
    monkeypatch.setattr(together, "on_this_machine", lambda size, network: report)
    out = run("--ranks", "2").output
    assert "rank 1: box at 192.0.2.1:5, clock +250.0 ms" in out
    assert "100.0 tcp" in out
    assert "2.00, 9.00" in out
    assert "10.0% sent again" in out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--ranks", "1"], "nothing can be measured between 1 ranks"),
        (["--network", "rate=1mbit"], "--network needs --ranks"),
        (["--ranks", "2", "--network", "rate=fast"], "rate"),
        (["--output", "no/such/folder/file"], "there is no folder no/such/folder"),
        (["--output", "/"], "cannot write /: Is a directory"),
    ],
)
def test_wrong_use(words: list[str], error: str) -> None:
    done = run(*words)
    assert isinstance(done.exception, UsageError)
    assert error in str(done.exception)


def test_ranks_are_torchruns_under_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in ("RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500"):
        monkeypatch.setenv(*setting.split("="))
    done = run("--ranks", "2")
    assert "torchrun has started the ranks already" in str(done.exception)


def test_half_an_environment_is_a_finding_and_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "two")
    done = run()
    assert done.exit_code == 1
    assert "RANK, WORLD_SIZE set without MASTER_ADDR, MASTER_PORT" in done.output
    assert "WORLD_SIZE=two is no whole number" in done.output


def test_ctrl_c_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tweed.doctor.examine", interrupt)
    done = run()
    assert done.exit_code == 130
    assert "Stopped." in done.output


def test_a_summary_counts() -> None:
    assert summary([GOOD, GOOD]) == "2 in order"
    assert summary([BAD, BAD, Finding(Level.NOTE, "")]) == "2 errors, 1 note, 0 in order"


def test_the_page_lists_every_check() -> None:
    page = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert rows == [f"| `{check.name}` | {check.about} |" for check in CHECKS]
