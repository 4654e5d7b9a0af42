"""The command line: what it prints, its exit codes, and that it is light."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tweed import testbed
from tweed.cli import main
from tweed.testbed import namespaces
from tweed.train import launch
from tweed.train.folder import RunFolder


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has its own folder of runs, and its own cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TWEED_CACHE", str(tmp_path / "cache"))
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def tweed(*words: str) -> int:
    """Runs the command in this process and returns its exit code."""
    before, sys.argv = sys.argv, ["tweed", *words]
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.argv = before
    return 0


DIGITS = ("train", "--task", "digits", "--workers", "2", "--steps", "8", "--backend", "gloo")


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert tweed("--help") == 0
    out = capsys.readouterr().out
    assert "train" in out
    assert "data" in out


def test_flags_take_no_value(capsys: pytest.CaptureFixture[str]) -> None:
    assert tweed("train", "--help") == 0
    out = capsys.readouterr().out
    assert "--resume   " in out and "--name <" in out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--join", "127.0.0.1:1", "--task", "digits"], "--join takes all settings from the run"),
        (["--join", ""], "set TWEED_JOIN"),
        (["--join", "127.0.0.1:1"], "no member can be joined"),
        (["--elastic", "7"], "--elastic takes LEAST:MOST members"),
        (["--elastic", "1:2", "--ray", "auto"], "torchrun and Ray end all workers when one dies"),
        (
            ["--elastic", "1:4", "--strategy", "cser"],
            "does not go with elastic=Elastic(...): members'",
        ),
    ],
)
def test_what_members_who_come_and_go_cannot_do_is_refused(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert tweed("train", *words) != 0
    assert why in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "runs").exists()


def test_the_named_strategies_are_described(capsys: pytest.CaptureFixture[str]) -> None:
    assert tweed("strategies") == 0
    out = capsys.readouterr().out
    assert "local_steps(every=8)" in out and "when to take it" in out


def test_the_package_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "tweed", "--version"], capture_output=True, check=True)
    assert done.stdout.startswith(b"tweed 0.")


def test_a_folder_that_cannot_be_written_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/proc/self")
    assert tweed(*DIGITS) == 2
    assert "tweed: cannot write the run to /proc/" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert tweed("--version") == 0
    assert capsys.readouterr().out.startswith("tweed 0.")


def test_the_command_line_is_light() -> None:
    code = "import sys, tweed.cli; sys.exit('torch' in sys.modules or 'matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["train", "--task", "cifar"], "no task 'cifar'; there are fashion-mnist, digits, shakespeare"),
        (["train", "--workers", "0"], "workers is 0"),
        (["train", "--strategy", "yelling"], "no strategy is named 'yelling'"),
        (["train", "--strategy", "teasq"], "teasq has a hub"),
        (["train", "--backend", "nccl"], "cannot run on backend 'nccl'"),
        (["train", "--network", "fast"], "cannot read 'fast' of a network"),
        (["train", "--or-unshaped"], "give --network too"),
        (["train", "--resume"], "--resume needs --name"),
        (["train", "--resume", "--name", "x"], "no run to resume in runs/x"),
        (["data", "get", "cifar"], "no data set 'cifar'"),
    ],
)
def test_wrong_use_is_one_line_and_code_2(
    words: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tweed(*words) == 2
    err = capsys.readouterr().err
    assert err.startswith("tweed: ")
    assert error in err
    assert err.count("\n") == 1
    assert not Path("runs").exists()


def test_a_network_that_cannot_be_built_is_one_line_that_says_what_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespaces, "_PATH", os.devnull)
    assert tweed(*DIGITS, "--network", "rate=1mbit") == 2
    err = capsys.readouterr().err
    assert err.startswith(
        "tweed: a network of namespaces needs ip, nsenter, tc, unshare: apt install iproute2"
    )
    assert err.count("\n") == 1
    assert not Path("runs").exists()


def test_data_get_says_where_it_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert tweed("data", "get", "digits") == 0
    assert f"digits: in {tmp_path / 'cache' / 'data' / 'digits'}" in capsys.readouterr().out
    assert tweed("data", "list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "not in the cache" in lines[0]
    assert "not in the cache" not in lines[1]


def test_train_leaves_figures_and_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert tweed(*DIGITS, "--against", "ddp-gloo", "--name", "a") == 0
    out = capsys.readouterr().out
    assert "tweed every_step over gloo: step 8/8" in out
    assert "PyTorch DDP on Gloo: step 8/8" in out
    assert "Report: runs/a/report.html" in out
    assert {told["side"] for told in RunFolder(Path("runs/a")).figures()} == {"tweed", "ddp-gloo"}
    assert "--against ddp-gloo --name a" in Path("runs/a/report.html").read_text()
    assert tweed(*DIGITS, "--name", "a") == 2
    assert "runs/a is there already" in capsys.readouterr().err


def test_ctrl_c_says_how_to_go_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(launch, "_handle", interrupt)
        assert tweed(*DIGITS, "--name", "a") == 130
    err = capsys.readouterr().err
    assert "There is no checkpoint yet. To begin anew: tweed train --name a --resume" in err
    assert tweed("train", "--name", "a", "--resume") == 0


def as_torchrun(rank: int, size: int, port: int, folder: Path) -> int:
    """What torchrun does for each worker: sets these names and starts the command."""
    os.chdir(folder)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1"}
    os.environ |= {"MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    return tweed(
        *[
            "train",
            "--task",
            "digits",
            "--steps",
            "8",
            "--backend",
            "gloo",
            "--against",
            "ddp-gloo",
            "--name",
            "a",
        ]
    )


def test_train_under_torchrun(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert testbed.run_ranks(as_torchrun, 2, port, tmp_path) == [0, 0]
    folder = RunFolder(tmp_path / "runs" / "a")
    assert [told["side"] for told in folder.figures() if told["step"] == 8] == ["tweed", "ddp-gloo"]
    assert folder.facts()["settings"]["workers"] == 2
    assert not folder.facts()["one_host"]
    assert (folder.path / "report.html").exists()
