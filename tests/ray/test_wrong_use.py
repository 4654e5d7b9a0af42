"""What is said where Ray is missing, too old or elsewhere; no cluster is needed."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner

from tweed.cli import app
from tweed.errors import PeerLost, UsageError
from tweed.ray import installed
from tweed.train import on_ray
from tweed.workloads.tasks import RayWorkers, map_tasks


def test_nothing_imports_ray_unless_asked_for() -> None:
    modules = (
        "sys, tweed.cli, tweed.ray, tweed.train.on_ray, tweed.testbed.ray_cluster, tweed.workloads.tasks"
    )
    words = [sys.executable, "-c", f"import {modules}; print('ray' in sys.modules)"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def give_version(monkeypatch: pytest.MonkeyPatch, found: str | None) -> None:
    def version(package: str) -> str:
        if found is None:
            raise metadata.PackageNotFoundError(package)
        return found

    monkeypatch.setattr(metadata, "version", version)


@pytest.mark.parametrize(
    ("found", "words"),
    [(None, "not installed"), ("2.9.3", "2.9.3 is too old, 2.55"), ("1.99.0", "too old")],
)
def test_a_ray_that_is_missing_or_too_old_is_named(
    monkeypatch: pytest.MonkeyPatch, found: str | None, words: str
) -> None:
    give_version(monkeypatch, found)
    import tweed.ray

    asked: list[Callable[[], Any]] = [
        lambda: tweed.ray.TweedConfig,
        lambda: on_ray.connected("auto").__enter__(),
        lambda: map_tasks("math:sqrt", [1.0], workers=RayWorkers(2)),
    ]
    for ask in asked:
        with pytest.raises(UsageError, match=rf"{words}.*pip install .*\[ray\]'"):
            ask()


@pytest.mark.parametrize(("found", "missing"), [("2.55.0", []), ("3.0.0rc1", []), ("2.60.0", ["pandas"])])
def test_a_ray_without_train_is_named(
    monkeypatch: pytest.MonkeyPatch, found: str, missing: list[str]
) -> None:
    give_version(monkeypatch, found)
    monkeypatch.setattr(installed, "find_spec", lambda name: None if name in missing else name)
    if not missing:
        installed.require_ray()
        return
    with pytest.raises(UsageError, match=r"Ray Train lacks pandas: pip install"):
        installed.require_ray()


@pytest.fixture
def recent(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a Ray were there that can be used."""
    monkeypatch.setattr(on_ray, "require_ray", lambda: None)


@pytest.mark.usefixtures("recent")
@pytest.mark.parametrize("address", ["", "head", "head:", "ray://head:10001", "head:port"])
def test_an_address_that_is_none_is_named(address: str) -> None:
    with pytest.raises(UsageError, match=r"HOST:PORT of a cluster's head"), on_ray.connected(address):
        pass


@pytest.mark.usefixtures("recent")
def test_an_address_where_nobody_answers_is_named_at_once() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(UsageError, match=rf"answers at 127.0.0.1:{port}.*ray start"):
        on_ray.connected(f"127.0.0.1:{port}").__enter__()


@pytest.mark.usefixtures("recent")
def test_a_worker_of_torchrun_does_not_place_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(UsageError, match="places the workers"):
        on_ray.connected("auto").__enter__()


@pytest.mark.parametrize(
    ("words", "said"),
    [("--restarts 1", "give --ray too"), ("--ray auto --network lan", "omit --network or --ray")],
)
def test_options_that_do_not_go_together_are_named(words: str, said: str) -> None:
    result = CliRunner().invoke(app, ["train", *words.split()])
    assert isinstance(result.exception, UsageError) and said in str(result.exception)


def test_figures_are_shown_once_and_anew_when_they_are_told_anew() -> None:
    shown: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = [{"step": step} for step in range(4)]
    known = on_ray._show_new([], rows[:3], shown.append)
    known = on_ray._show_new(known, rows[:3], shown.append)
    assert shown == rows[:3]
    told_anew = [*rows[:2], {"step": 2, "loss": 1.0}, rows[3]]  # cut after a restart, and written again
    on_ray._show_new(known, told_anew, shown.append)
    assert shown[3:] == told_anew[2:]


class Failed(Exception):
    """As Ray Train says which workers have failed."""

    worker_failures: ClassVar[dict[int, Exception]] = {
        0: PeerLost("rank 2 is gone"),
        2: RuntimeError("killed"),
        3: PeerLost("rank 2 is gone"),
    }


def test_a_failure_is_that_of_the_worker_that_lost_nobody() -> None:
    error = on_ray._failure(Failed(), 4)
    assert str(error).startswith("rank 2 of 4 failed") and "killed" in str(error)
    assert "given up the run: no room" in str(on_ray._failure(RuntimeError("no room"), 4))


def test_a_cluster_with_too_few_processors_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(cluster_resources=lambda: {"CPU": 3.0}))
    on_ray._check_room(3)
    with pytest.raises(UsageError, match="4 workers take a CPU each, and the Ray cluster has 3"):
        on_ray._check_room(4)


def test_what_belongs_to_a_host_does_not_go_along() -> None:
    along = ["TWEED_TENSORBOARD", "TWEED_PLAN"]
    own = ["TWEED_DEADLINE", "TWEED_HOST", "TWEED_SECRET", "TWEED_TESTBED", "PATH"]
    assert [name for name in along + own if on_ray._goes_along(name)] == along


def test_a_worker_that_does_not_see_the_folder_says_so(tmp_path: Path) -> None:
    job = {"settings": dict.fromkeys(["x"]), "folder": str(tmp_path / "nowhere"), "environment": {}}
    with pytest.raises(UsageError, match="all nodes of the Ray cluster share"):
        on_ray._work(job)


def main_function(value: int) -> int:
    return value


@pytest.mark.skipif(installed.version() is None, reason="Ray is not installed")
def test_tasks_that_ray_cannot_run_are_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UsageError, match=r"call ray\.init\(\) first"):
        map_tasks("math:sqrt", [1.0], workers=RayWorkers(2))
    import ray

    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "main_function", main_function, raising=False)
    with pytest.raises(UsageError, match="main_function is defined in the main module"):
        map_tasks("__main__:main_function", [1], workers=RayWorkers(2))
    with pytest.raises(UsageError, match="0 workers"):
        map_tasks("math:sqrt", [1.0], workers=RayWorkers(0))
