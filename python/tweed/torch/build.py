"""Compiles the C++ backend at first use, and keeps it.

One shared object per torch version, Python version and digest of the sources lies in the user's cache
directory (`TWEED_CACHE`, else `XDG_CACHE_HOME/tweed`, else `~/.cache/tweed`). It is compiled elsewhere, so an
interrupted compilation leaves nothing behind that could be loaded. Ranks that start together wait for the one
that compiles.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from tweed.files import cache, write_atomic

SOURCES = Path(__file__).parent / "csrc"
NAME = "tweed_torch"
_FLAGS = tuple(f"-std=c++20 -O1 -fPIC -shared -fvisibility=hidden -w -DTORCH_EXTENSION_NAME={NAME}".split())
#: Needs a C++20 compiler, its library, Python's headers and torch's.
_TRIAL = "#include <Python.h>\n#include <span>\n#include <c10/macros/Macros.h>\nint main_() { return 0; }\n"
_LIBRARIES = ("c10", "torch_cpu", "torch", "torch_python")


class CannotCompile(Exception):
    """There is no C++ backend here; the text says why. `tweed.torch` then takes the Python one."""


@functools.cache
def extension() -> ModuleType:
    """The compiled backend, loaded; see `build`."""
    loader = importlib.machinery.ExtensionFileLoader(NAME, str(build()))
    spec = importlib.util.spec_from_loader(NAME, loader)
    assert spec is not None  # spec_from_loader gives none only without a loader
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def build() -> Path:
    """Where the compiled backend lies. Compiles it (once per torch version, about 20 s) if it is not there.

    Raises:
      CannotCompile: no compiler, or it failed, or the cache cannot be written; says what to do.
    """
    target = where()
    try:
        _build(target)
    except OSError as error:
        raise CannotCompile(
            f"the cache cannot be written: {error}; set TWEED_CACHE to a folder that can be"
        ) from None
    return target


def _build(target: Path) -> None:
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the system lets go of it if this process dies
            if not target.exists():  # nobody did it while this process waited
                _compile(target)


def where() -> Path:
    """Where the backend of this torch and these sources lies once it is compiled. Does not import torch."""
    return cache() / "torch" / f"torch-{torch_version().__version__}-{_digest()}" / f"{NAME}.so"


@functools.cache
def torch_version() -> Any:
    """torch's module `torch.version`, alone: importing all of torch takes seconds.

    Raises: ModuleNotFoundError where torch is not installed.
    """
    path = _torch_folder() / "version.py"
    spec = importlib.util.spec_from_file_location("tweed_torch_version", path)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"no module {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _torch_folder() -> Path:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("torch is not installed")
    return Path(spec.origin).parent


def try_compiler(folder: Path) -> str:
    """Compiles and links some lines as `build` does the backend, in `folder`; about a second.

    Returns: the compiler's name.

    Raises:
      CannotCompile: as in `build`.
    """
    name, source = compiler(), folder / "try.cpp"
    source.write_text(_TRIAL)
    done = _run(command(name, folder / "try.so", source))
    if done.returncode != 0:
        raise CannotCompile(f"{name} failed: {_first_error(done.stderr)}")
    return name


def command(compiler: str, output: Path, source: Path = SOURCES / "module.cpp") -> list[str]:
    """The compiler's command line."""
    root = _torch_folder()
    include = root / "include"
    return [
        *(compiler, *_FLAGS, str(source), "-o", str(output)),
        *(f"-I{include}", f"-I{include / 'torch' / 'csrc' / 'api' / 'include'}"),
        f"-I{sysconfig.get_paths()['include']}",
        *("-Wl,--no-as-needed", f"-L{root / 'lib'}", f"-Wl,-rpath,{root / 'lib'}"),
        *(f"-l{name}" for name in _LIBRARIES),
    ]


def _digest() -> str:
    """Changes with all that makes another binary: sources, flags, Python's and torch's interfaces."""
    seen = hashlib.blake2b(digest_size=8)
    python = sysconfig.get_config_var("SOABI") or sys.version
    for part in (*_FLAGS, *_LIBRARIES, python, str(torch_version().git_version)):
        seen.update(part.encode())
    for path in sorted(SOURCES.iterdir()):
        seen.update(path.name.encode())
        seen.update(path.read_bytes())
    return seen.hexdigest()


def _compile(target: Path) -> None:
    name = compiler()
    say(f"compiling the backend for torch {torch_version().__version__} with {name} (once, about 20 s) ...")
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / target.name
        done = _run(command(name, output))
        if done.returncode != 0:
            raise CannotCompile(f"{name} failed: {_first_error(done.stderr)}")
        write_atomic(target, output.read_bytes())


def _run(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False)


def compiler() -> str:
    """Name of the C++ compiler that `build` takes. Raises CannotCompile if there is none."""
    wanted = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    for name in wanted:
        if shutil.which(name):
            return name
    raise CannotCompile(f"no C++ compiler found (looked for {', '.join(wanted)}); install g++ or set CXX")


def _first_error(text: str) -> str:
    lines = text.strip().splitlines()
    return next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "no message")


def say(line: str) -> None:
    """Prints a line on stderr, if anybody takes it: a pipe without a reader, or none at all, ends no rank."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            print(f"tweed: {line}", file=sys.stderr, flush=True)
