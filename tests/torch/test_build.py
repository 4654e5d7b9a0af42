"""The compiled backend: its cache, with shell scripts in the place of compilers; and its mirror.

`engine.py` says in Python what `csrc/engine.h` says in C.
"""

from __future__ import annotations

import multiprocessing
import re
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tweed.torch import build as building
from tweed.torch import engine
from tweed.torch.build import SOURCES


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TWEED_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets a compiler that runs a script. There `$out` is the output file; runs are counted in `runs`."""

    def choose(script: str) -> None:
        path, first = tmp_path / "cc", f"#!/bin/sh\necho x >> {tmp_path}/runs\n"
        path.write_text(f'{first}while [ "$1" != -o ]; do shift; done\nout=$2\n{script}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("CXX", str(path))

    return choose


def runs(folder: Path) -> int:
    return len((folder / "runs").read_text().split())


Compiler = Callable[[str], None]


def test_compiles_once(tmp_path: Path, compiler: Compiler, capfd: pytest.CaptureFixture[str]) -> None:
    compiler("echo binary > $out")
    first, second = building.build(), building.build()
    assert first == second
    assert first.read_text() == "binary\n"
    assert runs(tmp_path) == 1
    assert capfd.readouterr().err.count("compiling the backend for torch") == 1


def test_ranks_that_start_together_compile_once(tmp_path: Path, compiler: Compiler) -> None:
    compiler("echo binary > $out")
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=building.build) for _ in range(4)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
        assert rank.exitcode == 0
    assert runs(tmp_path) == 1


def test_an_interrupted_compilation_leaves_nothing(compiler: Compiler) -> None:
    compiler("echo half > $out; kill -9 $$")
    with pytest.raises(building.CannotCompile):
        building.build()
    compiler("echo whole > $out")
    assert building.build().read_text() == "whole\n"


def test_a_failed_compilation_says_why(compiler: Compiler) -> None:
    compiler("echo noise >&2; echo 'fatal error: Python.h: not there' >&2; exit 1")
    with pytest.raises(building.CannotCompile, match=r"cc failed: fatal error: Python\.h: not there"):
        building.build()


def test_a_cache_that_cannot_be_written_is_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWEED_CACHE", "/proc/nothing")
    with pytest.raises(building.CannotCompile, match=r"the cache cannot be written: .*set TWEED_CACHE"):
        building.build()


def test_no_compiler_is_said_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(building.CannotCompile, match="install g"):
        building.build()


def test_each_torch_and_each_change_has_its_own_place(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler("echo binary > $out")
    places = {building.build()}
    monkeypatch.setattr(building.torch_version(), "__version__", "9.9.9")
    places.add(building.build())
    monkeypatch.setattr(building, "_FLAGS", (*building._FLAGS, "-g"))
    places.add(building.build())
    assert len(places) == 3


HEADER = (SOURCES / "engine.h").read_text()


def numbers(prefix: str = "TWEED_") -> dict[str, int]:
    """The header's enumerators."""
    return {name: int(value) for name, value in re.findall(rf"\b{prefix}(\w+) = (\d+)", HEADER)}


def fields(struct: str) -> list[str]:
    """Names of a struct's members, functions included, in order."""
    body = re.search(r"typedef struct \{([^}]*)\} " + struct + ";", HEADER)
    assert body is not None
    text = re.sub(r"//.*", "", body.group(1))
    return re.findall(r"\(\*(\w+)\)\(|(\w+);", text) and [
        name or plain for name, plain in re.findall(r"\(\*(\w+)\)\([^;]*;|(\w+);", text)
    ]


@pytest.mark.parametrize(
    ("mirror", "struct"),
    [(engine.Segment, "tweed_segment"), (engine.Request, "tweed_request"), (engine.Table, "tweed_table")],
)
def test_members_are_in_order(mirror: type, struct: str) -> None:
    assert [name for name, _ in mirror._fields_] == fields(struct)


def test_numbers() -> None:
    header = numbers()
    assert engine.ABI == int(re.search(r"TWEED_ABI (\d+)u", HEADER).group(1))
    for member in (*engine.Operation, *engine.Status):
        assert header[member.name] == member.value
    assert header["BYTES"] == engine.BYTES


def test_dtypes() -> None:
    short = {"float": "F", "bfloat": "BF", "int": "I", "uint": "U"}
    for dtype, number in engine.DTYPES.items():
        kind, bits = re.fullmatch(r"torch\.([a-z]+)(\d*)", str(dtype)).groups()
        name = "BOOL" if dtype == torch.bool else short[kind] + bits
        assert numbers()[name] == number


def test_reduce_operators_have_torchs_numbers() -> None:
    names = {"PROD": "PRODUCT"}
    for name in ("SUM", "AVG", "PROD", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"):
        operator = getattr(dist.ReduceOp, names.get(name, name))
        assert numbers()[name] == int(operator.value if hasattr(operator, "value") else operator)


def test_every_status_but_two_is_an_error() -> None:
    assert set(engine.ERRORS) == set(engine.Status) - {engine.Status.OK, engine.Status.PENDING}
