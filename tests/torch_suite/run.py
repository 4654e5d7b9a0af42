"""Runs tests of torch's `distributed_test` one after the other, each on freshly forked ranks."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.torch_suite import case
from tests.torch_suite.case import RANKS, Outcome
from tweed.errors import DeadlineExceeded
from tweed.forkserver.server import preload
from tweed.testbed import RankFailed, run_ranks

_LIMIT_S = 60.0

preload("tests.torch_suite.case")


def outcomes(names: Iterable[str], backend: str) -> Iterator[tuple[str, Outcome]]:
    """Runs the tests over `backend`, yielding each with what became of it.

    Cost: about a second for each test that runs, of which 0.4 s are two sleeps in torch's own barrier.
    """
    for name in names:
        why = case.skipped_at_import(name)
        yield name, Outcome("skipped", why) if why is not None else _one(name, backend)


def _one(name: str, backend: str) -> Outcome:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for inner in ("barrier", "test_dir", "init_dir"):
            (Path(folder) / inner).mkdir()
        for variable, value in _environment(folder).items():
            patch.setenv(variable, value)
        try:
            ranks = run_ranks(case.run, RANKS, name, backend, timeout=_LIMIT_S)
        except (RankFailed, DeadlineExceeded) as error:
            return Outcome("failed", str(error))
    return _worst(ranks)


def _environment(folder: str) -> dict[str, str]:
    """What torch's own runner sets."""
    return {
        "TEMP_DIR": folder,
        "WORLD_SIZE": str(RANKS),
        "MASTER_ADDR": "127.0.0.1",
        "INIT_METHOD": f"file://{os.path.join(folder, 'init_dir', 'shared_init_file')}",
        "GLOO_SOCKET_IFNAME": "lo",
    }


def _worst(ranks: list[Outcome]) -> Outcome:
    """A test fails if it fails on one rank, and is skipped if it is skipped on one."""
    for kind in ("failed", "skipped"):
        found = [outcome for outcome in ranks if outcome.kind == kind]
        if found:
            return found[0]
    return Outcome("passed")
