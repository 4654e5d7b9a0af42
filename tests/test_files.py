"""Files are there whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tweed.errors import DataError
from tweed.files import cache, write_atomic


def test_a_write_replaces_what_was_there(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a", b"old")
    write_atomic(tmp_path / "a", "new é")
    assert (tmp_path / "a").read_text(encoding="utf-8") == "new é"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError("no space left on device")

    write_atomic(tmp_path / "a", "old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_atomic(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_processes_of_one_number_write_one_file_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync, others = os.fsync, iter(["second"])

    def interleaved(handle: int) -> None:
        for text in others:  # the first is written, and not in place
            write_atomic(tmp_path / "a", text)
        sync(handle)

    monkeypatch.setattr(os, "getpid", lambda: 1)
    monkeypatch.setattr(os, "fsync", interleaved)
    write_atomic(tmp_path / "a", "first")
    assert (tmp_path / "a").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_link_leads_to_its_file_and_a_device_stays_one(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a", "old")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    write_atomic(tmp_path / "link", "new")
    assert (tmp_path / "a").read_text() == "new" and (tmp_path / "link").is_symlink()
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_atomic(tmp_path / "pipe", "through")
    assert os.read(reader, 9) == b"through" and (tmp_path / "pipe").is_fifo()
    os.close(reader)


def test_an_error_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere/a'"):
        write_atomic(tmp_path / "nowhere" / "a", "")


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TWEED_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", f"{tmp_path}/x")
    assert cache() == tmp_path / "x/tweed"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", f"{tmp_path}/h")
    assert cache() == tmp_path / "h/.cache/tweed"


def test_who_has_no_home_gets_a_folder_that_nobody_else_can_write(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TWEED_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    private = tmp_path / f"tweed-{os.getuid()}"
    assert cache() == private and private.stat().st_mode & 0o777 == 0o700
    private.chmod(0o777)
    with pytest.raises(DataError, match=r"is not this user's alone.*TWEED_CACHE"):
        cache()
    private.rmdir()
    private.symlink_to(tmp_path)
    with pytest.raises(DataError, match="is not this user's alone"):
        cache()
