"""Checkpoints in parts: which parts form a whole, and what is left by a kill, a full disk, a damaged file."""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.elastic.test_state_to_joiner import state
from tweed.elastic import Checkpoints, checkpoint
from tweed.elastic.checkpoint import Part, whole, writers
from tweed.elastic.state import cut
from tweed.errors import DataError

NUMEL = 1000


PARTS = st.integers(1, 4).flatmap(
    lambda of: st.tuples(st.integers(0, of - 1), st.just(of), st.integers(1, 3))
)


@given(st.sets(PARTS))
def test_a_state_is_whole_when_all_parts_of_one_epoch_are_there(there: set[tuple[int, int, int]]) -> None:
    found = whole(Part(number, of, 8, "a", epoch=epoch) for number, of, epoch in there)
    complete = [
        (epoch, of)
        for epoch in range(1, 4)
        for of in range(1, 5)
        if all((number, of, epoch) in there for number in range(of))
    ]
    if not complete:
        assert found is None
    else:
        assert found is not None
        epoch, of = max(complete)
        assert [(one.number, one.of, one.epoch) for one in found] == [(n, of, epoch) for n in range(of)]


@given(st.integers(0, 10_000), st.integers(1, 40))
def test_parts_lie_side_by_side_and_are_all(total: int, parts: int) -> None:
    ends = [cut(total, number, parts) for number in range(parts)]
    assert ends[0][0] == 0 and ends[-1][1] == total
    assert all(one[1] == other[0] for one, other in pairwise(ends))


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ([], []),
        ([""], []),
        (["a"], [0]),
        (["a", "a", "a"], [0, 1, 2]),
        (["b", "a", "", "a"], [1, 3]),
        (["b", "a"], [0]),
        (["", "", "c"], [2]),
    ],
)
def test_the_most_that_see_one_folder_write(places: list[str], expected: list[int]) -> None:
    assert writers(places) == expected


def write(
    folder: Path, step: int, of: int, numbers: list[int], epoch: int = 0, salt: int = 0, run: str = "run"
) -> None:
    """As these members do, one after the other; with another salt the state has other bits."""
    for number in numbers:
        one = Checkpoints(folder, 1)
        one.write(step, number, of, state(step + salt, NUMEL), (epoch, run))
        one.wait()


def step_of(folder: Path) -> int | None:
    """Of the checkpoint that counts; it must be whole."""
    found = Checkpoints(folder, 1).load()
    if found is None:
        return None
    step: int = found.tree["step"]
    assert torch.equal(found.tree["model"]["w"], state(step, NUMEL).tree["model"]["w"])
    return step


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
def test_a_checkpoint_counts_with_its_last_part_and_the_one_before_goes(
    tmp_path: Path, order: list[int]
) -> None:
    write(tmp_path, 10, 3, order[:2])
    assert step_of(tmp_path) is None
    write(tmp_path, 10, 3, order[2:])
    assert step_of(tmp_path) == 10
    write(tmp_path, 20, 3, order[:2])
    assert step_of(tmp_path) == 10
    write(tmp_path, 20, 2, [1, 0])  # one was lost: the others write theirs again
    assert step_of(tmp_path) == 20
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-00000020"]


def test_who_was_stopped_while_it_wrote_does_not_bring_an_older_one_back(tmp_path: Path) -> None:
    write(tmp_path, 20, 2, [0, 1])
    (tmp_path / "latest").write_text("10")  # what it does last, when the others are further
    assert step_of(tmp_path) == 20
    Checkpoints(tmp_path, 1).finish()
    assert step_of(tmp_path) == 20


def test_only_parts_of_one_epoch_form_a_checkpoint(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path, 1).epoch() == 0
    # One member alone counted the step and was lost: those of the next epoch have summed it anew.
    write(tmp_path, 10, 2, [0], epoch=6, salt=5)
    write(tmp_path, 10, 2, [1], epoch=7)
    assert step_of(tmp_path) is None
    write(tmp_path, 10, 2, [0], epoch=7)
    assert Checkpoints(tmp_path, 1).epoch() == 7 and step_of(tmp_path) == 10
    manifest = json.loads((tmp_path / "step-00000010" / "manifest.json").read_text())
    assert manifest["epoch"] == 7 and [part["epoch"] for part in manifest["parts"]] == [7, 7]


def test_parts_of_two_runs_form_no_checkpoint_and_a_founder_that_goes_on_late_removes_none(
    tmp_path: Path,
) -> None:
    write(tmp_path, 10, 1, [0], run="first")
    write(tmp_path, 20, 2, [0], salt=5, run="first")  # and it ends; the second goes on from step 10
    write(tmp_path, 20, 2, [1], run="second")
    assert step_of(tmp_path) == 10
    Checkpoints(tmp_path, 1).finish()  # a founder of the second, which was stopped as it began
    write(tmp_path, 20, 2, [0], run="second")
    assert step_of(tmp_path) == 20


class Killed(BaseException):
    """As SIGKILL: nothing is done behind it."""


def test_a_kill_between_any_two_files_leaves_the_old_one_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = checkpoint.write_atomic, 0

    def killed_at(number: int) -> Callable[[Path, bytes | str], None]:
        def write_atomic(path: Path, content: bytes | str) -> None:
            nonlocal calls
            if calls == number:
                raise Killed
            calls += 1
            real(path, content)

        return write_atomic

    left = []
    for number in range(9):
        folder, calls = tmp_path / f"{number}", 0
        write(folder, 10, 2, [0, 1])
        monkeypatch.setattr(checkpoint, "write_atomic", killed_at(number))
        # In this thread: the kill ends all that would follow.
        monkeypatch.setattr(checkpoint, "Thread", Inline)
        with suppress(Killed):
            write(folder, 20, 2, [1, 0])
        monkeypatch.undo()
        left.append(step_of(folder))
        Checkpoints(folder, 1).finish()
        write(folder, 30, 3, [2, 0, 1])
        assert step_of(folder) == 30 and len(list(folder.glob("step-*"))) == 1
    assert left == [10] * 6 + [20] * 3


class Inline:
    """A thread that runs at once."""

    def __init__(self, target: Callable[..., None], args: tuple[object, ...], name: str) -> None:
        self.start = lambda: target(*args)

    def join(self) -> None:
        """It has ended."""


def test_on_a_full_disk_the_old_one_stays_and_the_next_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, 10, 1, [0])
    real = checkpoint.write_atomic

    def full(path: Path, content: bytes | str) -> None:
        if path.name == "part-0-of-2-in-0-.json":
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        real(path, content)

    monkeypatch.setattr(checkpoint, "write_atomic", full)
    one = Checkpoints(tmp_path, 1)
    with caplog.at_level(logging.WARNING):
        for step in (20, 30, 40):
            one.write(step, 0, 2, state(step, NUMEL))
    one.wait()
    assert "checkpoint of step 20 is not written: [Errno 28] No space left" in caplog.text
    assert "that of step 10 stays" in caplog.text
    assert step_of(tmp_path) == 10
    assert not list(tmp_path.glob("step-*/part-0-of-2-*"))  # it takes no room
    write(tmp_path, 40, 2, [1], run="")
    monkeypatch.undo()
    one.wait()  # it is tried once more
    assert step_of(tmp_path) == 40
    one.write(50, 0, 1, state(50, NUMEL))
    one.wait()
    assert step_of(tmp_path) == 50


@pytest.mark.parametrize("by", ["its writer", "another member", "the next run"])
def test_what_has_all_parts_and_could_not_be_listed_is_listed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    real = checkpoint.write_atomic

    def full(path: Path, content: bytes | str) -> None:
        if path.name == "manifest.json":
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        real(path, content)

    monkeypatch.setattr(checkpoint, "write_atomic", full)
    one = Checkpoints(tmp_path, 1)
    one.write(10, 0, 1, state(10, NUMEL))
    one._writer.join()  # type: ignore[union-attr]
    monkeypatch.undo()
    assert step_of(tmp_path) is None
    if by == "its writer":
        one.wait()
    elif by == "another member":
        write(tmp_path, 20, 2, [1])
    else:
        Checkpoints(tmp_path, 1).finish()
    assert step_of(tmp_path) == 10


def test_parts_that_came_to_nothing_do_not_pile_up(tmp_path: Path) -> None:
    one = Checkpoints(tmp_path, 1)
    for step in range(10, 60, 10):
        one.write(step, 0, 2, state(step, NUMEL))
    one.wait()
    assert len(list(tmp_path.glob("step-*"))) <= 3


def test_what_is_damaged_names_the_file(tmp_path: Path) -> None:
    write(tmp_path, 10, 2, [0, 1])
    here = tmp_path / "step-00000010"
    (damaged,) = here.glob("part-1-of-2-in-0-run-*")
    data = damaged.read_bytes()
    damaged.write_bytes(data[:-1] + b"!")
    with pytest.raises(DataError, match=r"part-1-of-2-in-0-run-.* is damaged: it has other bytes"):
        step_of(tmp_path)
    damaged.unlink()
    with pytest.raises(DataError, match=r"cannot be read.*part-1-of-2"):
        step_of(tmp_path)
    damaged.write_bytes(data)
    assert step_of(tmp_path) == 10
    wrong = ('{"format": 3, "parts": [{}]}', '{"format": 3, "parts": []}', "{}", "[]", "", "7")
    for text in (*wrong, '[{"members": 2}]', '{"epoch": 1, "parts": []}'):
        (here / "manifest.json").write_text(text)
        with pytest.raises(DataError, match=r"manifest\.json is damaged, or of an earlier version of tweed"):
            step_of(tmp_path)
    (here / "manifest.json").unlink()
    with pytest.raises(DataError, match="was not written in parts"):
        step_of(tmp_path)


def test_a_folder_has_one_name_for_all_and_none_where_nothing_can_be_written(tmp_path: Path) -> None:
    here = tmp_path / "a"
    names = {Checkpoints(here, 1).place for _ in range(3)}
    assert len(names) == 1 and names != {Checkpoints(tmp_path / "b", 1).place}
    assert [path.name for path in here.iterdir()] == ["place"]
    (tmp_path / "file").touch()
    assert Checkpoints(tmp_path / "file" / "c", 1).place == ""
