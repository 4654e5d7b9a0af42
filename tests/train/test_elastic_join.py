"""`tweed train --join` as a user types it; Ctrl-C there and at the launcher: what ends, and what stays."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tweed.elastic.checkpoint import Checkpoints
from tweed.train.folder import RunFolder, latest
from tweed.train.settings import OURS

#: So many that none of these runs comes to its end.
STEPS = 1_000_000


@contextmanager
def command(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """`tweed train` with these words, in a folder of its own as on a machine of its own."""
    folder.mkdir(exist_ok=True)
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "TWEED_JOIN": ""}
    line = [sys.executable, "-m", "tweed", "train", *words]
    both: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(line, cwd=folder, env=environment, text=True, **both) as process:
        try:
            yield process
        finally:
            process.kill()


def heard(process: subprocess.Popen[str], words: str) -> str:
    """The line with these words, of those that a command prints."""
    assert process.stdout is not None
    before = []
    for line in process.stdout:
        if words in line:
            return line
        before.append(line)
    raise AssertionError(f"it has ended without {words!r}: {''.join(before)}")


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit code, and what it has printed since."""
    out, _ = process.communicate(timeout=60)
    return process.returncode, out


@contextmanager
def launcher(folder: Path, steps: int = STEPS) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A run of two workers, and the address at which others join. A step takes longer than to take its
    result, also where other work leaves little time to who joins."""
    job = ["--task", "digits", "--workers", "2", "--batch-size", "256", "--steps", str(steps)]
    with command(folder, *job, "--elastic", "1:4", "--name", "run") as process:
        yield process, heard(process, "Others join").split()[-1]


def until(holds: Callable[[], bool], what: str) -> None:
    """Files of other processes say so; within a minute."""
    end = time.monotonic() + 60.0
    while not holds():
        assert time.monotonic() < end, f"not within a minute: {what}"
        time.sleep(0.02)


def run_in(folder: Path) -> RunFolder:
    return RunFolder(folder / "runs" / "run")


def members(folders: list[RunFolder]) -> list[int]:
    """How many there were, figure by figure."""
    return [row["members"] for folder in folders for row in folder.figures()]


def epochs(folder: RunFolder) -> int:
    """The epoch of the last figure."""
    figures = folder.figures()
    return figures[-1]["epoch"] if figures else 0


def test_who_joins_trains_along_and_leaves_in_good_order(tmp_path: Path) -> None:
    folders = [run_in(tmp_path / name) for name in "abc"]
    with (
        launcher(tmp_path / "a") as (_, address),
        command(tmp_path / "b", "--join", address) as one,
        command(tmp_path / "c", "--join", address) as other,
    ):
        assert "One of 4 members" in "".join(heard(joined, "members from step") for joined in (one, other))
        # Whoever is rank 0 writes figures, into the folder of its machine.
        until(lambda: 4 in members(folders), "figures of four members")
        for joined, number, code, left in ((one, signal.SIGTERM, 0, 3), (other, signal.SIGINT, 130, 2)):
            before = max(map(epochs, folders))
            joined.send_signal(number)
            found, out = ended(joined)
            assert found == code and "Left in good order; the others go on." in out, out
            assert "Traceback" not in out
            until(
                lambda left=left, before=before: any(
                    members([folder])[-1:] == [left] and epochs(folder) > before for folder in folders
                ),
                "figures of those who stay",
            )
        settings = [folder.facts()["settings"] for folder in folders]
        assert settings[0] == settings[1] == settings[2]


def test_ctrl_c_at_the_launcher_leaves_no_process_and_the_last_checkpoint(tmp_path: Path) -> None:
    checkpoints = run_in(tmp_path / "a").checkpoints(OURS)
    with launcher(tmp_path / "a", 1_600) as (launched, _):  # eight checkpoints, of which it comes to one
        while not latest(checkpoints):
            heard(launched, "step")
        children = psutil.Process(launched.pid).children(recursive=True)
        assert len(children) > 3  # the fork server, the witness, two workers
        launched.send_signal(signal.SIGINT)
        code, out = ended(launched)
    assert code == 130 and "Traceback" not in out, out
    assert "Stopped; all workers are gone. To go on from the last checkpoint" in out
    again = "tweed train --name run --resume --elastic 1:4"
    assert again in out and not psutil.wait_procs(children, timeout=15)[1]
    # Who was ended between the last manifest and the mark leaves a checkpoint that is whole.
    stored = Checkpoints(checkpoints, every=1).latest()
    with command(tmp_path / "a", *again.split()[2:]) as resumed:
        assert f"Goes on from step {stored}, written in epoch " in heard(resumed, "Goes on")
        heard(resumed, "step")


def test_ctrl_c_before_a_joiner_is_a_member_ends_it_at_once(tmp_path: Path) -> None:
    silent = socket.create_server(("127.0.0.1", 0))  # takes calls, and never answers
    address = f"127.0.0.1:{silent.getsockname()[1]}"
    with silent, command(tmp_path / "b", "--join", address) as joined:
        called, _ = silent.accept()
        with called:  # if it were closed, the joiner would say so
            joined.send_signal(signal.SIGINT)
            code, out = ended(joined)
    assert (code, out) == (130, "Stopped; the others go on without this worker.\n")
    assert not (tmp_path / "b" / "runs").exists()
