"""The cache of compiled backends, with shell scripts in the place of compilers."""

from __future__ import annotations

import multiprocessing
import stat
from pathlib import Path

import pytest

from tweed.torch import build as building


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TWEED_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def compiler(folder: Path, script: str) -> str:
    """A compiler that runs `script`, in which `$out` is the output file, and counts its runs in `runs`."""
    path = folder / "cc"
    path.write_text(
        f'#!/bin/sh\necho x >> {folder}/runs\nwhile [ "$1" != -o ]; do shift; done\nout=$2\n{script}\n'
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def runs(folder: Path) -> int:
    return len((folder / "runs").read_text().split())


def test_compiles_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", compiler(tmp_path, "echo binary > $out"))
    first, second = building.build(), building.build()
    assert first == second
    assert first.read_text() == "binary\n"
    assert runs(tmp_path) == 1
    assert capfd.readouterr().err.count("compiling the backend for torch") == 1


def test_ranks_that_start_together_compile_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", compiler(tmp_path, "echo binary > $out"))
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=building.build) for _ in range(4)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
        assert rank.exitcode == 0
    assert runs(tmp_path) == 1


def test_an_interrupted_compilation_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", compiler(tmp_path, "echo half > $out; kill -9 $$"))
    with pytest.raises(building.CannotCompile):
        building.build()
    monkeypatch.setenv("CXX", compiler(tmp_path, "echo whole > $out"))
    assert building.build().read_text() == "whole\n"


def test_a_failed_compilation_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "CXX", compiler(tmp_path, "echo noise >&2; echo 'fatal error: Python.h: not there' >&2; exit 1")
    )
    with pytest.raises(building.CannotCompile, match=r"cc failed: fatal error: Python\.h: not there"):
        building.build()


def test_no_compiler_is_said_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(building.CannotCompile, match="install g"):
        building.build()


def test_each_torch_and_each_change_has_its_own_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", compiler(tmp_path, "echo binary > $out"))
    places = {building.build()}
    monkeypatch.setattr(building.torch_version(), "__version__", "9.9.9")
    places.add(building.build())
    monkeypatch.setattr(building, "_FLAGS", (*building._FLAGS, "-g"))
    places.add(building.build())
    assert len(places) == 3
