"""The check itself, on the CPU: each part runs, and what fails, hangs or dies costs its own row only."""

from __future__ import annotations

import os
import secrets
import signal
import threading
from typing import Any

import pytest
import torch

from tests.gpu import run, table
from tests.gpu.__main__ import main
from tests.gpu.parts import PARTS, Part
from tests.gpu.programs import LEFT_OUT, DrawnOnHost
from tests.gpu.table import Row, render
from tests.programs.table import rows as programs
from tweed.errors import StrategyError
from tweed.recipes import RECIPES

BY_NAME = {part.name: part for part in PARTS}


@pytest.mark.parametrize("name", BY_NAME)
def test_each_part_runs_on_the_cpu(name: str) -> None:
    part = BY_NAME[name]
    found = list(run.rows(part, part.quick, "cpu", 120.0))
    assert {(row.case, row.backend) for row in found} >= {
        (case, backend or "-") for case in part.quick for backend in part.backends[:1]
    }
    assert [row for row in found if row.bad] == []
    assert {row.word for row in found} <= {table.OK, table.FAILED}  # Gloo has not all operations


def misbehaves(case: str, rank: int, size: int, device: torch.device) -> Any:
    if rank == 1 and case == "raises":
        raise ValueError("so it is")
    if case == "refuses":
        raise StrategyError("not this")
    if rank == 1 and case == "hangs":
        threading.Event().wait()
    if rank == 1 and case == "breaks":
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    if rank == 1 and case == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    return [1.0, float(secrets.randbelow(1 << 30)) if case == "differs" else 2.0]


def test_a_case_that_goes_wrong_is_a_row_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "CASE_S", 4.0)
    cases = ("raises", "works", "hangs", "refuses", "dies", "breaks", "differs", "goes on")
    part = Part("odd", misbehaves, cases, (), 1.0, ("",))
    found = {row.case: row for row in run.rows(part, cases, "cpu", 60.0)}
    assert [found[case].word for case in cases] == [
        table.FAILED, table.OK, table.FAILED, table.REFUSED, table.FAILED, table.FAILED,
        table.DIFFERS, table.OK,
    ]  # fmt: skip
    assert "so it is" in found["raises"].log
    assert "hangs" in found["hangs"].log and "SIGKILL" in found["dies"].log


def test_what_has_no_time_left_is_not_run() -> None:
    part = Part("odd", misbehaves, ("works",), (), 0.0, ("",))
    [row] = run.rows(part, part.cases, "cpu", part.limit_s)
    assert row.word == table.NOT_RUN and row.bad


def test_every_named_strategy_is_tried_and_every_reason_for_leaving_out_is_of_a_program() -> None:
    names = [case.partition("(")[0].partition(":")[0] for case in BY_NAME["strategies"].cases]
    assert names == [make.__name__ for make in RECIPES]
    assert set(LEFT_OUT) <= {row.name for row in programs()}
    assert sum(part.limit_s for part in PARTS) <= 8 * 60


def test_the_table_has_a_column_for_each_backend_and_says_what_failed() -> None:
    text = render(
        [
            Row("a", "b", "tweed", table.OK),
            Row("a", "b", "gloo", table.FAILED, "Traceback\nError: no"),
            Row("codecs", "c", "-", table.DIFFERS, "value 3 of 9"),
        ]
    )
    assert "| a | b | ok | failed |" in text and "| codecs | c | differs |  |" in text
    assert "a b gloo: failed: Error: no" in text
    assert "1 of 2 cases work over tweed; 1 do not" in text


def test_random_values_are_those_of_the_host() -> None:
    def draws() -> list[torch.Tensor]:
        torch.manual_seed(3)
        return [torch.randn(3), torch.empty(2).uniform_(), torch.nn.Linear(2, 2).weight.detach()]

    plain = draws()
    with torch.device("cpu"), DrawnOnHost():
        drawn = draws()
    assert all(torch.equal(one, other) for one, other in zip(plain, drawn, strict=True))


def test_without_a_gpu_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("sys.argv", ["tests.gpu"])
    assert main() == 0
    assert "no GPU" in capsys.readouterr().out
