"""Tasks on live processes: results in order, deaths, errors by name, and that nothing is left behind."""

from __future__ import annotations

import functools
import io
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from rich.console import Console

from tests.blocks import blocks
from tests.workloads import task_functions as functions
from tweed.errors import DeadlineExceeded, PeerLost, TaskFailed, UsageError
from tweed.workloads.tasks import LocalWorkers, map_tasks, progress_bar


def test_results_come_in_the_order_of_tasks() -> None:
    seen: list[tuple[int, int]] = []
    results = map_tasks(
        functions.square, range(20), workers=3, progress=lambda counted, total: seen.append((counted, total))
    )
    assert [*results.items()] == [(task, task * task) for task in range(20)]
    assert seen == [(counted, 20) for counted in range(1, 21)]


def test_what_is_shared_and_arrays_and_tensors_cross() -> None:
    shared = {"array": np.arange(3, dtype=np.float32), "tensor": torch.ones(2, dtype=torch.bfloat16)}
    results = map_tasks(functions.scaled, [2.0, 3.0], shared=shared, workers=2)
    for value, (array, tensor) in zip([2.0, 3.0], results.values(), strict=True):
        np.testing.assert_array_equal(array, value * shared["array"])
        assert array.dtype == np.float32 and torch.equal(tensor, shared["tensor"] + value)
    sent = [1, 2.5, "text", b"bytes", None, (1,), {1}, {"a": 1}, np.ones(2), np.float32(1), torch.ones(1)]
    expected = [functions.kinds(value) for value in sent]
    assert [*map_tasks(functions.kinds, sent, workers=2).values()] == expected


def test_large_payloads_and_results_cross() -> None:
    big = torch.arange(1 << 19, dtype=torch.float64)
    results = map_tasks(functions.square, [big, big + 1], workers=2)
    assert torch.equal(results[0], big * big) and torch.equal(results[1], (big + 1) ** 2)


def test_workers_have_one_thread_and_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWEED_OF_TESTS", "now")
    assert map_tasks("tests.workloads.task_functions:threads", [0], workers=1) == {0: (1, "now", 3)}


def test_no_payloads_start_nothing() -> None:
    assert map_tasks(functions.square, []) == {}


def test_tasks_of_killed_workers_go_to_others(tmp_path: Path) -> None:
    results = map_tasks(functions.dies_once, [(str(tmp_path), number) for number in range(10)], workers=2)
    assert results == {number: number for number in range(10)}


@pytest.mark.parametrize("function", [functions.blocks_first, functions.is_stopped_first])
def test_a_task_whose_process_hangs_runs_elsewhere_too(function: Callable[..., Any], tmp_path: Path) -> None:
    results = map_tasks(function, [(str(tmp_path), number) for number in range(6)], workers=2)
    assert results == {number: number for number in range(6)}


def test_enough_ends_what_still_runs() -> None:
    def three(results: Mapping[int, Any]) -> bool:
        return len(results) == 3

    assert map_tasks(functions.pauses, [0, 1, 0, 0], workers=2, enough=three) == {0: 0, 2: 0, 3: 0}


def test_standing_workers_serve_one_map_after_the_other() -> None:
    with LocalWorkers(2) as workers:
        first = set(map_tasks(functions.process, range(8), workers=workers).values())
        assert map_tasks(functions.square, range(5), workers=workers) == {task: task**2 for task in range(5)}
        with pytest.raises(TaskFailed, match="no twos"):
            map_tasks(functions.fails, [1, 2, 3], workers=workers)
        assert map_tasks(functions.scaled_by, [2, 3], shared=5, workers=workers) == {0: 10, 1: 15}
        assert set(map_tasks(functions.process, range(8), workers=workers).values()) & first
    assert not any(psutil.pid_exists(number) for number in first)


def test_what_a_map_leaves_running_is_no_part_of_the_next_one(tmp_path: Path) -> None:
    payloads = [(str(tmp_path), number) for number in range(2)]
    with LocalWorkers(2) as workers:
        results = map_tasks(functions.blocks_first, payloads, workers=workers, enough=lambda some: 1 in some)
        assert results == {1: 1}
        assert map_tasks(functions.square, range(6), workers=workers) == {task: task**2 for task in range(6)}
        with pytest.raises(DeadlineExceeded):
            map_tasks("time:sleep", [60.0], workers=workers, deadline_s=0.2)
        assert map_tasks(functions.square, range(2), workers=workers) == {0: 0, 1: 1}


def test_standing_workers_that_have_died_are_replaced() -> None:
    with LocalWorkers(2) as workers:
        for number in {*map_tasks(functions.process, range(8), workers=workers).values()}:
            os.kill(number, signal.SIGKILL)
        assert map_tasks(functions.square, range(4), workers=workers) == {task: task**2 for task in range(4)}


def test_without_speculation_a_late_task_runs_once(tmp_path: Path) -> None:
    payloads = [(str(tmp_path), number) for number in range(3)]
    with pytest.raises(DeadlineExceeded, match="1 of 3 tasks"):
        map_tasks(functions.blocks_first, payloads, workers=2, speculation=False, deadline_s=1.0)


def test_a_task_that_raises_is_named_with_its_traceback() -> None:
    with pytest.raises(TaskFailed, match=r"task 1 of 3 .*task_functions:fails") as raised:
        map_tasks(functions.fails, [1, 2, 3], workers=1)
    assert raised.value.task == 1
    assert "ValueError: no twos" in str(raised.value) and "task_functions.py" in str(raised.value)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (functions.dies, "has ended 3 processes; the last one died of SIGKILL"),
        (functions.leaves, "SystemExit: 3"),
        (functions.returns_a_function, "value of type function"),
    ],
)
def test_a_task_without_a_result_is_named(function: Callable[..., Any], text: str) -> None:
    with pytest.raises(TaskFailed, match=text):
        map_tasks(function, [1], workers=1)


def test_the_deadline_names_what_is_under_way() -> None:
    with pytest.raises(DeadlineExceeded, match=r"after 0\.5 s, .* [12] of 2 tasks to do"):
        map_tasks(functions.pauses, [0, 1], workers=1, deadline_s=0.5)


def test_workers_that_cannot_begin_are_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that only its launcher can import."""
    (tmp_path / "only_here.py").write_text(
        f"import os\nif os.getpid() != {os.getpid()}:\n    raise OSError('not here')\ndef f(x): return x\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PeerLost, match=r"none of 1 workers is left(.|\n)*OSError: not here"):
        map_tasks("only_here:f", [1, 2], workers=1)


def nested(value: int) -> Callable[[int], int]:
    def inner(other: int) -> int:
        return value + other

    return inner


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda value: value, "is a lambda"),
        (nested(1), "is a function within a function"),
        (functions.Holder().method, "is a method"),
        (functions.Holder.method, "is a method"),
        (str.upper, "has no name|is a method"),
        (functools.partial(functions.square), "has no name"),
        ("math.sqrt", "is no name of a function"),
        ("math:nonsense", "has no such function"),
        ("no_such_module:f", "No module named"),
    ],
)
def test_functions_that_workers_cannot_find_are_refused(function: Any, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        map_tasks(function, [1])


def test_functions_of_an_interactive_session_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def typed(value: int) -> int:
        return value

    typed.__module__, typed.__qualname__ = "__main__", "typed"
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    with pytest.raises(UsageError, match="typed is defined in an interactive session"):
        map_tasks(typed, [1])


@dataclass
class Pair:
    left: int = 0


@pytest.mark.parametrize("value", [object(), [Pair()], np.array(["text"]), {"a": iter(())}, print])
def test_a_payload_that_cannot_be_sent_is_named_before_anything_starts(
    value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tweed.workloads.tasks.mapping.LocalWorkers", None)
    with pytest.raises(UsageError, match="payload 1 cannot be sent"):
        map_tasks(math.sqrt, [1, value])
    with pytest.raises(UsageError, match="what is shared cannot be sent"):
        map_tasks(math.sqrt, [1], shared=value)


@pytest.mark.parametrize("settings", [{"workers": 0}, {"deadline_s": 0.0}, {"deadline_s": -1.0}])
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="cannot be"):
        map_tasks(math.sqrt, [1], **settings)


def test_the_example_of_the_page_runs() -> None:
    example = next(one for one in blocks() if one.page == "docs/tasks.md" and one.language == "python")
    space: dict[str, Any] = {}
    exec(example.text, space)
    expected = [torch.full((1000,), value) for value in (1.0, 2.0, 3.0)]
    assert all(map(torch.equal, space["results"].values(), expected))


def test_a_bar_shows_how_many_are_counted() -> None:
    terminal, file = io.StringIO(), io.StringIO()
    for to, is_terminal in ((terminal, True), (file, False)):
        with progress_bar("squares", Console(file=to, force_terminal=is_terminal, width=80)) as progress:
            progress(2, 2)
    assert "squares" in terminal.getvalue() and "2/2" in terminal.getvalue() and file.getvalue().strip() == ""


LAUNCHER = """
import os, sys
from multiprocessing import forkserver
from tweed.forkserver import server
from tweed.workloads.tasks import map_tasks

server._preloads.clear()  # this one need not be warm

if __name__ == "__main__":
    try:
        map_tasks("tests.workloads.task_functions:says_where", [1])
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        sys.exit(7)
"""


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], psutil.Process]]:
    """A launcher whose only task is under way, and the process that runs it."""
    (tmp_path / "launcher.py").write_text(LAUNCHER)
    words = [sys.executable, str(tmp_path / "launcher.py")]
    environment = os.environ | {"PYTHONPATH": os.getcwd()}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as running:
        assert running.stdout is not None
        yield running, psutil.Process(int(running.stdout.readline()))
        running.kill()


def test_ctrl_c_leaves_no_process_behind(launched: tuple[subprocess.Popen[str], psutil.Process]) -> None:
    launcher, worker = launched
    launcher.send_signal(signal.SIGINT)
    output, _ = launcher.communicate()
    assert (output, launcher.returncode) == ("interrupted\n", 7)
    assert not worker.is_running()


def test_a_killed_launcher_leaves_no_process_behind(
    launched: tuple[subprocess.Popen[str], psutil.Process],
) -> None:
    launcher, worker = launched
    launcher.kill()
    worker.wait(60)
