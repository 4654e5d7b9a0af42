"""The fork server and its ranks: results, failures, and that nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tweed.errors import DeadlineExceeded, UsageError
from tweed.testbed import Ended, Failed, RankFailed, Ranks, Said, run_ranks, say


def seen(rank: int, size: int, factor: int) -> dict[str, object]:
    return {
        "product": rank * size * factor,
        "threads of the server": len(os.listdir(f"/proc/{os.getppid()}/task")),
        "environment": (os.environ.get("TWEED_TEST"), os.environ.get("OMP_NUM_THREADS")),
        "torch is there before the fork": "torch" in sys.modules,
    }


def reduce_sum(rank: int, size: int) -> float:
    import torch
    import torch.distributed as dist

    total = torch.tensor([float(rank)])
    dist.all_reduce(total)
    return total.item()


def one_raises(rank: int, size: int) -> None:
    if rank == 1:
        raise KeyError("the culprit")
    signal.pause()


def one_dies(rank: int, size: int) -> None:
    if rank == 2:
        os.kill(os.getpid(), signal.SIGSEGV)
    signal.pause()


def one_exits(rank: int, size: int) -> None:
    os._exit(3)


def unpicklable(rank: int, size: int) -> object:
    return lambda: None


def wait(rank: int, size: int) -> None:
    signal.pause()


def talk(rank: int, size: int) -> str:
    say({"rank": rank})
    say("more")
    return "done"


def gone(pids: list[int]) -> bool:
    """Waits until no process of `pids` runs. A dead one that nobody has collected counts as gone."""

    def runs(pid: int) -> bool:
        try:
            return psutil.Process(pid).status() != "zombie"
        except psutil.NoSuchProcess:
            return False

    for _ in range(1000):
        if not any(map(runs, pids)):
            return True
        time.sleep(0.01)
    return False


def test_results_come_by_rank_from_a_warm_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWEED_TEST", "now")
    same = {"threads of the server": 1, "environment": ("now", "1"), "torch is there before the fork": True}
    assert run_ranks(seen, 3, 5) == [same | {"product": product} for product in (0, 15, 30)]


def test_backend_gives_a_process_group() -> None:
    assert run_ranks(reduce_sum, 3, backend="gloo") == [3.0] * 3


def test_first_error_is_raised_with_rank_and_traceback() -> None:
    with pytest.raises(RankFailed, match=r"(?s)rank 1 of 3.*one_raises.*the culprit") as caught:
        run_ranks(one_raises, 3)
    assert caught.value.rank == 1
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("fn", "size", "words"),
    [
        (one_dies, 3, "rank 2 of 3 died of SIGSEGV"),
        (one_exits, 1, "exit code 3"),
        (unpicklable, 1, r"(?s)rank 0.*pickle"),
    ],
)
def test_how_a_rank_failed_is_named(fn: Callable[[int, int], object], size: int, words: str) -> None:
    with pytest.raises(RankFailed, match=words):
        run_ranks(fn, size)


def test_timeout_names_ranks_and_ends_them() -> None:
    with pytest.raises(DeadlineExceeded, match=r"ranks \[0, 1\] of 2"):
        run_ranks(wait, 2, timeout=0.01)


def test_no_ranks_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot start 0 ranks"):
        run_ranks(wait, 0)


def test_poll_tells_what_ranks_said_and_how_they_ended() -> None:
    with Ranks(talk, 1) as ranks:
        events = []
        while ranks.running():
            events += ranks.poll()
    assert events == [Said(0, {"rank": 0}), Said(0, "more"), Ended(0, "done")]


def test_kill_ends_one_rank_and_stop_the_others() -> None:
    with Ranks(wait, 2) as ranks:
        pids = [ranks.pid(rank) for rank in range(2)]
        ranks.kill(1)
        (event,) = ranks.poll()
        assert isinstance(event, Failed)
        assert "rank 1 of 2 died of SIGKILL" in event.text
        assert ranks.running() == [0]
    assert gone(pids)


def test_a_death_is_blamed_before_the_errors_that_follow_from_it() -> None:
    follower = Failed(0, "lost a peer", ValueError(), when=1.0)
    death = Failed(1, "died", None, when=2.0)
    first, second = Failed(0, "a", KeyError(), when=1.0), Failed(1, "b", KeyError(), when=2.0)
    with Ranks(wait, 1) as ranks:
        assert ranks.blame([follower, death]) is death
        assert ranks.blame([second, first]) is first


def test_say_outside_a_rank_is_refused() -> None:
    with pytest.raises(UsageError, match="no rank"):
        say("hello")


LAUNCHER = """
import os, signal
from multiprocessing import forkserver
from tweed.forkserver import server
from tweed.testbed import Ranks

server._preloads.clear()  # this one need not be warm

def wait(rank, size):
    signal.pause()

if __name__ == "__main__":
    ranks = Ranks(wait, 2)
    server = vars(forkserver)["_forkserver"]._forkserver_pid
    print(server, *(ranks.pid(rank) for rank in range(2)), flush=True)
    ranks.poll()
"""


def words_of_killed(launcher: str, folder: Path) -> list[str]:
    """What a program has said in one line, before it is killed."""
    (folder / "launcher.py").write_text(launcher)
    words, pipe = [sys.executable, str(folder / "launcher.py")], subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as running:
        assert running.stdout is not None
        line = running.stdout.readline()
        running.kill()
    return line.split()


def test_killed_launcher_leaves_nothing_behind(tmp_path: Path) -> None:
    pids = [int(word) for word in words_of_killed(LAUNCHER, tmp_path)]
    assert len(pids) == 3 and gone(pids)


PRESSED_EARLY = """
import multiprocessing
from tweed.forkserver import server

if __name__ == "__main__":
    server._preloads[:] = ["pressing"]
    server.start()
    rank = multiprocessing.get_context("forkserver").Process(target=print, args=("started",))
    rank.start()
    rank.join()
"""


def test_ctrl_c_while_the_fork_server_starts_is_not_for_it(tmp_path: Path) -> None:
    (tmp_path / "launcher.py").write_text(PRESSED_EARLY)
    (tmp_path / "pressing.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = subprocess.run([sys.executable, str(tmp_path / "launcher.py")], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("started\n", "")


IN_THE_BACKGROUND = """
import os, signal
from tweed.testbed import run_ranks

def interrupted(rank, size):
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        return True
    return False

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell starts a job with `&`
    print(run_ranks(interrupted, 1))
"""


def test_ranks_take_interrupts_though_their_launcher_ignores_them(tmp_path: Path) -> None:
    script = tmp_path / "launcher.py"
    script.write_text(IN_THE_BACKGROUND)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert done.stdout == "[True]\n"
