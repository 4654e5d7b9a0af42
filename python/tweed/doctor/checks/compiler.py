"""The C++ compiler for tweed's backend, and whether the backend is there already."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tweed.doctor.finding import Finding, Level
from tweed.files import cache
from tweed.torch import build


@dataclass(frozen=True, slots=True)
class Facts:
    """`cached`: the compiled backend, if it is there. Else the compiler that works, or why there is none."""

    cached: str | None = None
    compiler: str | None = None
    error: str | None = None
    cannot_keep: str | None = None


def gather() -> Facts:
    """Looks for the compiled backend; only if it is missing, compiles some lines (about a second)."""
    try:
        if (target := build.where()).exists():
            return Facts(cached=str(target.parent))
    except ModuleNotFoundError:
        return Facts(error="torch is not installed, whose headers it needs")
    try:
        with tempfile.TemporaryDirectory() as folder:
            return Facts(compiler=build.try_compiler(Path(folder)), cannot_keep=_cannot_keep())
    except build.CannotCompile as error:
        return Facts(error=str(error))


def _cannot_keep() -> str | None:
    """Why the cache cannot be written; asked of the nearest folder that exists."""
    folder = cache() / "torch"
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    return None if os.access(there, os.W_OK | os.X_OK) else f"{there} cannot be written"


def judge(facts: Facts) -> Iterator[Finding]:
    """The Python backend takes over where there is no compiler, so its lack is no error."""
    if facts.cached is not None:
        yield Finding(Level.OK, f"the C++ backend is compiled, in {facts.cached}")
        return
    if facts.error is not None:
        what = f"no C++ backend: {facts.error}. The Python one takes over, slower for small messages"
        yield Finding(Level.WARNING, what, "sudo apt install g++ python3-dev; or export CXX=COMPILER (C++20)")
        return
    if facts.cannot_keep is not None:
        what = f"the compiled backend has no place to stay: {facts.cannot_keep}"
        yield Finding(Level.WARNING, what, "export TWEED_CACHE=/tmp/tweed-$USER")
    yield Finding(
        Level.NOTE,
        f"{facts.compiler} works; the backend is not compiled yet: the first group waits about 20 s",
        'compile now: python -c "from tweed.torch import build; build.build()"',
    )
