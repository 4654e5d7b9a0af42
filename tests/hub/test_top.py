"""A hub without a group can be looked at from outside, as a group can."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_cli import tweed
from tests.hub.test_serve import PATIENCE_S, member, members, opened, refused, soon  # noqa: F401
from tests.metrics.conftest import room  # noqa: F401 - a place of its own for sockets
from tweed import _core
from tweed.aggregate import Cache, Krum
from tweed.collective import Hub
from tweed.errors import UsageError
from tweed.metrics.live import watchers
from tweed.metrics.snapshot import Matrix
from tweed.strategy import Strategy


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWEED_METRICS", "0.02")


def seen(until: Any) -> Matrix:
    """The first matrix of the only run here that is as wanted."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        for watcher in watchers():
            with watcher, suppress(EOFError):  # it may have ended as it was found: look again
                while (matrix := watcher.next(PATIENCE_S)) is not None:
                    if until(matrix):
                        return matrix
    raise AssertionError("nothing of the kind was told")


def judged(commits: int) -> Callable[[Matrix], bool]:
    """Whether a matrix has so many commits of three contributions each, with what became of all of them: the
    thread of metrics may look within a commit."""
    return lambda matrix: (
        matrix.hub is not None
        and matrix.hub.version == commits
        and sum(one.counted + one.rejected for one in matrix.hub.members) == 3 * commits
    )


def test_top_shows_the_members_of_a_hub(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    strategy = Strategy(collective=Hub(0, when=Cache(3)), aggregate=Krum(1))
    files = [str(tmp_path / name) for name in "abc"]
    keys = [_core.HubLinks(key_file=file).key for file in files]
    run = opened(strategy, fewest=3, members=keys)
    looked = []

    def look(version: int) -> None:
        if version == 4:
            refused(
                lambda: _core.HubLinks().call(run.address.partition("@")[2]), UsageError, "not on the list"
            )
        if version == 5:
            looked.append(seen(judged(5)))
            assert tweed("top", "--once") == 0

    calls = [lambda n=n: member(run.address, n, strategy, key_file=files[n]) for n in range(3)]
    with members(*calls):
        run.serve(commits=6, after=look)
    hub = looked[0].hub
    assert hub is not None and (hub.there, hub.known) == (3, 3)
    assert sorted(one.key for one in hub.members) == sorted(keys)
    assert sum(one.counted for one in hub.members) == 5  # Krum believes one of three
    assert sum(one.rejected for one in hub.members) == 10
    assert all(one.reason and one.score is not None for one in hub.members if one.rejected)
    assert hub.bytes_in == run.stats.bytes_exchanged * 5 // 6 and hub.bytes_out > 0
    assert hub.refused["unlisted"] == 1
    shown = capsys.readouterr().out
    assert "3 members" in shown and all(key[:8] in shown for key in keys) and "1 unlisted" in shown
    run.detach()
    ended = time.monotonic() + PATIENCE_S
    while list(watchers()):
        assert time.monotonic() < ended


def test_with_no_metrics_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWEED_METRICS", "0")
    run = opened()
    assert not list(watchers())
    run.detach()
