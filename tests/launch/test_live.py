"""`tweed launch` over a real sshd, between hosts of a testbed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.launch.hosts import Hosts, served

#: Ranks that tell where they are, and then wait, fail or are killed.
_SCRIPT = """
import os, signal, sys, time
rank = os.environ["RANK"]
print("at", os.environ["TWEED_HOST"], "with", len(os.environ["TWEED_SECRET"]), *sys.argv[1:])
print("error stream", file=sys.stderr)
if sys.argv[1] == "exit" and rank == "1":
    sys.exit(7)
if sys.argv[1] == "kill" and rank == "1":
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1] != "end":
    if sys.argv[1] == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.system("sleep 3600 & echo $! $PPID; wait")
"""


@pytest.fixture(scope="module")
def hosts(namespaces: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with served(tmp_path_factory.mktemp("hosts")) as found:
        (found.folder / "script.py").write_text(_SCRIPT)
        yield found


@contextmanager
def started(hosts: Hosts, how: str) -> Iterator[tuple[subprocess.Popen[str], list[psutil.Process]]]:
    """A launcher, and the processes of its two ranks and what they have started, once all run."""
    with hosts.start("a", "b", "--no-doctor", "--", "script.py", how) as launcher:
        assert launcher.stdout
        lines: list[str] = []
        try:
            while len(lines) < 2:
                words = launcher.stdout.readline().split()
                assert words, launcher.communicate()
                lines += [" ".join(words[1:])] if words[1].isdigit() else []
            yield launcher, [psutil.Process(int(pid)) for line in lines for pid in line.split()]
        finally:
            launcher.kill()


def gone(processes: list[psutil.Process]) -> bool:
    """All of them end, within 15 s."""
    return not psutil.wait_procs(processes, timeout=15)[1]


def test_the_doctor_visits_and_output_is_marked_by_rank(hosts: Hosts) -> None:
    code, out, err = hosts.launch("a", "b", "--env", "X=1", "--", "script.py", "end", "--lr", "1")
    assert code == 0, err
    assert sorted(out.splitlines()) == [f"[{r}] at 10.77.0.{r + 1} with 64 end --lr 1" for r in (0, 1)]
    lines = err.splitlines()
    assert {"[0] error stream", "[1] error stream", "tweed: b (10.77.0.2): rank 1"} <= set(lines)
    assert any(line.startswith("rank 1: ") and "10.77.0.2:29600" in line for line in lines)  # the doctor's


def test_this_machine_needs_no_ssh_and_long_lines_come_in_pieces(hosts: Hosts) -> None:
    code, out, err = hosts.launch("localhost", "b", "--no-doctor", "--", "script.py", "end")
    assert code == 0, err
    code, long, err = hosts.launch("localhost", "--", "-c", "print(100_000 * '\x01')")
    assert code == 0, err
    assert long.replace("[0] ", "").replace("\n", "") == 100_000 * "\x01"
    assert sorted(out.splitlines()) == [
        "[0] at 10.77.0.3 with 64 end",
        "[1] at 10.77.0.2 with 64 end",
    ]


@pytest.mark.parametrize(
    ("how", "code", "words"), [("exit", 7, "ended with exit code 7"), ("kill", 137, "was killed by SIGKILL")]
)
def test_a_rank_that_fails_ends_the_others(hosts: Hosts, how: str, code: int, words: str) -> None:
    found, _, err = hosts.launch("a", "b", "--no-doctor", "--", "script.py", how)
    assert found == code
    assert err.splitlines()[-1] == f"tweed: rank 1 on b {words}; the others were ended"


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_however_the_launcher_ends_no_rank_is_left(hosts: Hosts, number: signal.Signals, code: int) -> None:
    with started(hosts, "wait") as (launcher, processes):
        lines = [one.info["cmdline"] or [] for one in psutil.process_iter(["cmdline"])]  # None of a zombie
        everything = " ".join(word for line in lines for word in line)
        assert "tweed.launch.agent" in everything
        secret = processes[0].environ().get("TWEED_SECRET") or processes[1].environ()["TWEED_SECRET"]
        assert secret not in everything
        launcher.send_signal(number)
        assert gone(processes)
        _, err = launcher.communicate(timeout=30)
    assert launcher.returncode == code, err
    assert "Traceback" not in err


def test_ranks_that_ignore_sigterm_are_killed_when_their_session_breaks(hosts: Hosts) -> None:
    with started(hosts, "stubborn") as (launcher, processes):
        ssh = [one for one in psutil.Process(launcher.pid).children() if one.cmdline()[-2:-1] == ["b"]]
        (session,) = ssh
        session.kill()
        out, err = launcher.communicate(timeout=30)
        assert launcher.returncode == 1
        assert "the connection to b has ended, and with it rank 1" in err, out
        assert gone(processes)


@pytest.mark.parametrize("taken", [True, False])
def test_an_agent_that_hears_nothing_ends_its_ranks(tmp_path: Path, taken: bool) -> None:
    """As where the launcher's host has lost its power, and no packet says so, nor takes what ranks print."""
    more = "" if taken else "print('x' * 2**20);"
    script = tmp_path / "sleeps.py"
    script.write_text(f"import time; print('here'); {more} time.sleep(3600)")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-m", "tweed.launch.agent", "1"], **pipes) as agent:
        order = {"folder": str(tmp_path), "words": [sys.executable, str(script)]}
        order |= {"ranks": [{"rank": 3, "environment": {"PYTHONUNBUFFERED": "1"}}]}
        agent.stdin.write("\n" + json.dumps({"run": order}) + "\n")
        agent.stdin.flush()
        if taken:
            assert [json.loads(line) for line in agent.stdout] == [{"line": [3, 1, "here"]}]
        assert agent.wait(30) == 0
    lines = [one.info["cmdline"] or [] for one in psutil.process_iter(["cmdline"])]
    assert [line for line in lines if str(script) in line] == []


def test_hosts_that_cannot_be_used_are_named_all_at_once(hosts: Hosts) -> None:
    code, _, err = hosts.launch("a", "c", "nobody", "--", "script.py", "end")
    assert code == 2
    assert "c: ssh cannot connect" in err
    assert "ssh-copy-id c" in err
    assert "nobody: ssh cannot connect" in err
    assert "ping nobody" in err
    code, _, err = hosts.launch("a", "b", "--", "other.py")
    assert code == 2
    assert all(f"{name}: there is no other.py in {hosts.folder}" in err for name in "ab")


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        ("import time; now = time.time; time.time = lambda: now() - 300", "the clock of b is 300 s behind"),
        (
            "from tweed import distribution; distribution.version = lambda: '0.0.9'",
            "hosts have different versions of tweed",
        ),
    ],
)
def test_a_host_that_differs_is_named(hosts: Hosts, tmp_path: Path, lie: str, words: str) -> None:
    """An interpreter stands in for one host's: it lies, where the network is that of "b"."""
    false = tmp_path / "python"
    agent = "import runpy; runpy.run_module('tweed.launch.agent', run_name='__main__')"
    real = sys.executable
    false.write_text(
        "#!/bin/sh\ncase $SSH_CONNECTION in\n"
        f'*" 10.77.0.2 "*) exec {real} -c "{lie}; {agent}" 60;;\n*) exec {real} "$@";;\nesac\n'
    )
    false.chmod(0o755)
    code, _, err = hosts.launch("a", "b", "--python", str(false), "--", "script.py", "end")
    assert code == 2
    assert words in err
    assert "timedatectl" in err or "pip install tweed_train-" in err
