"""One test of torch's `distributed_test`, on one rank.

That file asks in many places, most of them read at import, whether the backend is one of those that it
knows. So it is told that it tests Gloo, whose tests all have CPU tensors, and gets the backend in question
whenever it asks for a process group. Two kinds of tests are run that torch leaves out: those that its CI
gives to MPI alone, and those that it skips below 8 ranks though they need 3.
"""

from __future__ import annotations

import functools
import importlib
import os
import unittest
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import torch.distributed as dist

RANKS = 4

os.environ.setdefault("BACKEND", "gloo")
os.environ.setdefault("WORLD_SIZE", str(RANKS))
os.environ.setdefault("TEMP_DIR", "/nowhere")  # the launcher gives each test its own

common: Any = importlib.import_module("torch.testing._internal.common_distributed")
common.skip_if_small_worldsize = lambda test: test
suite: Any = importlib.import_module("torch.testing._internal.distributed.distributed_test")

_torchs_init_process_group = dist.init_process_group


class Case(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
    """All tests."""


@dataclass(frozen=True)
class Outcome:
    """What became of a test: `passed`, `skipped` or `failed`, and why."""

    kind: str
    why: str = ""


def names() -> list[str]:
    """Every test in the file."""
    return unittest.TestLoader().getTestCaseNames(Case)


def skipped_at_import(name: str) -> str | None:
    """Why the test never runs here, if so; known without starting ranks."""
    why = str(getattr(getattr(Case, name), "__unittest_skip_why__", ""))
    return why if why and not why.startswith("Only MPI supports") else None


def run(rank: int, size: int, name: str, backend: str) -> Outcome:
    """Runs test `name` as rank `rank` of `size`, through torch's own entry point for spawned processes."""
    if name == "test_get_backend":
        suite.BACKEND = backend  # compares names and asks for nothing else
    suite.dist.init_process_group = functools.partial(_init_process_group, backend)
    _quiet()
    ours, theirs = Pipe()
    try:
        Case._run(rank, name, os.path.join(os.environ["TEMP_DIR"], "store"), theirs)
    except SystemExit as left:
        return _outcome(int(left.code or 0), _told(ours))
    return Outcome("passed")


def _init_process_group(tested: str, backend: str | None = None, **given: Any) -> None:
    """As torch's, with the tested backend in the place of Gloo."""
    _torchs_init_process_group(tested if backend == "gloo" else backend, **given)


def _quiet() -> None:
    """Sends what torch prints to a file: its profiler alone prints some hundred lines."""
    log = os.open(os.path.join(os.environ["TEMP_DIR"], "log"), os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(log, stream)


def _told(pipe: Connection) -> str:
    """The traceback that the test sent before it left, if it did."""
    try:
        return str(pipe.recv())
    except EOFError:
        return ""


def _outcome(code: int, text: str) -> Outcome:
    if code == 0:
        return Outcome("passed")
    reasons = {skip.exit_code: skip.message for skip in common.TEST_SKIPS.values()}
    return (
        Outcome("skipped", reasons[code])
        if code in reasons
        else Outcome("failed", text or f"exit code {code}")
    )
