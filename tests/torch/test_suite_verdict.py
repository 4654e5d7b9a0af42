"""What counts as a regression against torch's own tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torch_suite import page, verdict
from tests.torch_suite.case import Outcome
from tests.torch_suite.verdict import Expected

BEFORE = Expected(
    "2.15",
    {
        "gloo": {"test_a": "passed", "test_b": "passed", "test_c": "skipped"},
        "tweed": {"test_a": "passed", "test_b": "failed", "test_c": "passed"},
    },
)


def test_what_tweed_or_gloo_passed_is_due() -> None:
    actual = {"test_a": "failed", "test_b": "failed", "test_c": "skipped"}
    assert verdict.regressions(BEFORE, actual) == ["test_a", "test_b", "test_c"]
    assert verdict.regressions(BEFORE, dict.fromkeys(actual, "passed")) == []


def test_named_exceptions_are_not_due_and_only_what_was_run_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert verdict.regressions(BEFORE, {"test_a": "passed"}) == []
    monkeypatch.setitem(verdict.EXCEPTIONS, "test_b", "a reason")
    assert verdict.regressions(BEFORE, {"test_a": "passed", "test_b": "failed"}) == []


def test_quick_takes_one_of_each_family() -> None:
    names = ["test_all_reduce_max", "test_all_reduce_min", "test_barrier", "test_all_gather"]
    expected = Expected("", {"tweed": dict.fromkeys(names, "passed") | {"test_send_recv": "failed"}})
    assert verdict.quick(expected) == ["test_all_gather", "test_all_reduce_max", "test_barrier"]


def test_expectations_are_kept(tmp_path: Path) -> None:
    BEFORE.write(tmp_path / "expected.json")
    assert Expected.read(tmp_path / "expected.json") == BEFORE
    assert Expected.read(tmp_path / "none.json") == Expected("", {})


def test_page_lists_what_ran_and_counts_the_rest() -> None:
    skipped = Outcome("skipped", "no GPU")
    gloo = {"test_a": Outcome("passed"), "test_b": Outcome("passed"), "test_c": skipped}
    tweed = {"test_a": Outcome("passed"), "test_b": Outcome("failed", "x"), "test_c": skipped}
    text = page.render("2.15", 2, {"gloo": gloo, "tweed": tweed})
    assert "Of 3 tests, Gloo passes 2 and tweed 1." in text
    assert "- `test_b`: no reason known" in text
    assert "| `test_b` | passed | failed |" in text
    assert "- 1: no GPU" in text
