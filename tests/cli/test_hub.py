"""`tweed serve` and `tweed join`: processes that share nothing but an address."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from tests.cli.test_cli import tweed
from tweed.train import checkpoint
from tweed.train.folder import RunFolder
from tweed.train.hub_task import replayed
from tweed.train.settings import OURS

# Who comes late would find a hub that has ended training: it begins when both are there.
_ENDS = ["--commits", "20", "--parts", "2", "--fewest", "2"]
_JOB = ["digits", "--strategy", "mlfabric(aggregators=1)", "--name", "a", *_ENDS]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A command as a process of its own, which does not outlive the test."""
    said = f"import sys; sys.argv = {['tweed', *words]}; from tweed.cli import main; main()"
    command = [sys.executable, "-c", said]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def line_with(process: subprocess.Popen[str], text: str) -> str:
    """The next line with `text` in it."""
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if text in line:
            return line
    raise AssertionError(f"no {text!r} in: {''.join(seen)}")


def test_a_hub_that_is_killed_goes_on_and_its_members_with_it(tmp_path: Path) -> None:
    with ExitStack() as stack:
        hub = stack.enter_context(started("serve", *_JOB, "--log"))
        address = line_with(hub, "tweed join").split()[-1]
        members = [stack.enter_context(started("join", address, *some)) for some in ([], ["--aggregator"])]
        line_with(hub, "commit 4:")
        hub.kill()
        again = stack.enter_context(started("serve", *_JOB, "--resume"))
        assert line_with(again, "tweed join").split()[-1] == address
        report = line_with(again, "Report: ").split()[-1]
        for member in members:
            line_with(member, "The hub has ended training")
            assert member.wait(20) == 0
    page = (tmp_path / report).read_text()
    assert "<h2>Members</h2>" in page and "mean delay (commits)" in page
    _replays(RunFolder(tmp_path / "runs/a"))


def _replays(run: RunFolder) -> None:
    """The log has the commits of both processes, and the bits of the model that the second one stored."""
    lines = run.commit_lines()
    assert [line["version"] for line in lines] == list(range(1, 21))
    assert set(lines[0]["keys"]) <= {"0", "1"} and all(len(key) == 64 for key in lines[0]["keys"].values())
    model, found = replayed(run)
    assert found.processes == 2 and found.checked >= 20
    assert [line["contributions"] for line in lines] == [
        [asdict(one) for one in commit.contributions] for commit in found.commits
    ]
    state = checkpoint.load(run.checkpoints(OURS))
    assert state is not None
    for name, value in model.state_dict().items():
        assert torch.equal(value, state["model"][name])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["serve", "digits", "--strategy", "every_step"], "has no hub"),
        (["serve", "nothing"], "there is no task"),
        (["serve", "digits", "--members", "missing"], "list of members cannot be read"),
        (["join", "example.org:7070"], "is missing: give KEY@"),
        (["join", "127.0.0.1:1", "--listen", "127.0.0.1:0"], "add --aggregator"),
        (["join", "0" * 64 + "@127.0.0.1:1"], "nothing listens there"),
    ],
)
def test_wrong_use_is_said(words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert tweed(*words) in (1, 2)
    assert text in capsys.readouterr().err
    assert not Path("runs").exists()
