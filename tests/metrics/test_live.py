"""The socket between a run and `tweed top`: who may enter, what is told, what is left behind."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from tests.metrics.cases import BEFORE, NOW, matrix
from tweed.cli import main
from tweed.errors import UsageError
from tweed.metrics.live import Listener, Watcher, watchers


def test_who_comes_late_gets_the_last_two_at_once(room: Path) -> None:
    listener = Listener("1")
    for moment in (matrix(8.0, 0), BEFORE, NOW):
        listener.show(moment)
    (watcher,) = watchers()
    with watcher:
        listener.admit()
        assert [watcher.next(5), watcher.next(5)] == [BEFORE, NOW]
        assert watcher.next(0.001) is None
        listener.show(NOW)
        assert watcher.next(5) == NOW
        listener.close()
        with pytest.raises(EOFError):
            watcher.next(5)
    assert list(watchers()) == []


def test_only_the_user_can_enter(room: Path) -> None:
    listener = Listener("1")
    assert stat.S_IMODE(listener.path.parent.stat().st_mode) == 0o700
    listener.close()


def test_a_folder_that_others_can_enter_is_not_used(room: Path) -> None:
    (room / "tweed").mkdir(mode=0o755)
    listener = Listener("1")
    assert listener.path.parent == room / f"tweed-{os.getuid()}"
    listener.close()


def test_a_folder_behind_a_link_is_not_used(room: Path) -> None:
    (room / "elsewhere").mkdir(mode=0o700)
    for name in ("tweed", f"tweed-{os.getuid()}"):
        (room / name).symlink_to(room / "elsewhere")
    with pytest.raises(UsageError, match="a folder that is yours alone"):
        Listener("1")


def test_a_socket_that_nobody_listens_on_is_removed(room: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    listener = Listener("1")
    path = listener.path.with_name("2.sock")
    left.bind(str(path))
    left.close()
    found = list(watchers())
    assert [watcher.path for watcher in found] == [listener.path]
    assert not path.exists()
    found[0].__exit__()
    listener.close()


def test_a_client_that_does_not_read_is_dropped_and_the_others_are_not(
    room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tweed.metrics.live._PATIENCE_S", 0.001)
    listener = Listener("1")
    with Watcher(listener.path), Watcher(listener.path) as reader:
        listener.admit()
        many = matrix(1.0, 1, size=20)
        for _ in range(16):  # more than a socket holds
            listener.show(many)
            assert reader.next(5) == many
        assert len(listener._clients) == 1
        listener.close()


def test_a_run_that_tells_nothing_is_not_called_absent(
    room: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tweed.cli.top._PATIENCE_S", 0.001)
    monkeypatch.setattr("sys.argv", ["tweed", "top"])
    listener = Listener("77")
    with pytest.raises(SystemExit, match="1"):
        main()
    assert "rank 0 in process 77 tells nothing: it is stopped, or too busy" in capsys.readouterr().err
    listener.close()


def test_a_path_that_is_too_long_is_said(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = room / ("x" * 120)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    with pytest.raises(UsageError, match="for `tweed top`: AF_UNIX path too long"):
        Listener("1")


def test_a_fork_lets_go_without_removing_the_socket(room: Path) -> None:
    listener = Listener("1")
    other = Listener("2")
    other.disown()
    assert other.path.exists()
    assert [watcher.path for watcher in watchers()] == [listener.path]
    assert not other.path.exists()
    listener.close()
