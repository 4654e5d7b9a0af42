"""What `tweed launch` decides: plans, answers of hosts, lines of ranks, ends of jobs. No host is needed."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.doctor.estimate import Clock
from tweed.errors import UsageError
from tweed.launch.host_checks import HostInfo, problems, why_no_agent, with_addresses
from tweed.launch.job import Host, Job, command, passed_on
from tweed.launch.job_exit import GRACE_S, JobExit
from tweed.launch.lines import Lines

SECRET = "a secret of some length"


def job(*hosts: str, **others: Any) -> Job:
    values: dict[str, Any] = {
        "words": ("train.py", "--lr", "0.1"),
        "secret": SECRET,
        "ranks_per_host": 2,
        "python": "/venv/bin/python",
        "folder": "/work",
        "ports": "29600-29699",
        "port": 29500,
    }
    return Job(tuple(map(Host.parse, hosts)), **(values | others))


# Plans


def test_ranks_are_numbered_host_by_host_and_meet_on_the_first() -> None:
    planned = job("a=10.0.0.1", "b=10.0.0.2", environment={"TWEED_DEADLINE": "9"})
    (one, two) = planned.order(1)["ranks"]
    assert planned.order(1)["words"] == ["/venv/bin/python", "train.py", "--lr", "0.1"]
    assert [one["rank"], two["rank"]] == [2, 3]
    assert two["environment"] == {
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "TWEED_DEADLINE": "9",
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "1",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29500",
        "TWEED_HOST": "10.0.0.2",
        "TWEED_SECRET": SECRET,
        "TWEED_SECRET_FILE": "",
        "TWEED_PORTS": "29600-29699",
    }


def test_a_rank_alone_on_its_host_has_all_its_threads_unless_told_otherwise() -> None:
    alone = job("a=10.0.0.1", ranks_per_host=1).order(0)["ranks"][0]["environment"]
    assert "OMP_NUM_THREADS" not in alone
    told = job("a=10.0.0.1", environment={"OMP_NUM_THREADS": "3"}).order(0)["ranks"][0]["environment"]
    assert told["OMP_NUM_THREADS"] == "3"


def test_the_doctor_visits_each_host_once() -> None:
    visit = job("a=10.0.0.1", "b=10.0.0.2").doctor()
    assert visit.size == 2
    assert visit.words[:3] == ("-m", "tweed", "doctor")


def test_no_command_line_shows_the_secret_and_none_asks() -> None:
    words = command(Host("me@b"), "/a path/python", "ssh -p 2222")
    assert words[:3] == ["ssh", "-p", "2222"]
    assert "BatchMode=yes" in words
    assert words[-2:] == ["me@b", "'/a path/python' -P -m tweed.launch.agent 60"]
    assert command(Host("localhost"), "python", "ssh")[0] == "python"
    assert SECRET not in repr(job("a"))


def test_variables_that_hold_everywhere_are_passed_on_and_no_others() -> None:
    here = {"TWEED_DEADLINE": "9", "TWEED_HOST": "10.0.0.9", "TWEED_SECRET": SECRET, "HOME": "/root"}
    assert passed_on(here, ["CUDA_VISIBLE_DEVICES=0,1", "A=b=c"]) == {
        "TWEED_DEADLINE": "9",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "A": "b=c",
    }


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: job(), "no host is given: tweed launch HOST1"),
        (lambda: job("a", words=()), "nothing is given to run"),
        (lambda: job("a", "b", "a"), "a is given twice.*--ranks-per-host"),
        (lambda: job("a=b"), "'b' is no IP address.*a=ADDRESS"),
        (lambda: job("-oProxyCommand=x"), "is no host"),
        (lambda: job("a", ports="29600"), "--ports 29600 are 1, and each of the 2 ranks.*29600-29699"),
        (lambda: job("a", ports="many"), "ports must look like 29600-29699"),
        (lambda: passed_on({}, ["A"]), "--env A: give NAME=VALUE"),
        (lambda: command(Host("a"), "python", "ssh 'x"), "is no command"),
        (lambda: command(Host("a"), "python", ""), "--ssh is empty"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_type(make: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make()


# Answers


def host_info(**others: Any) -> HostInfo:
    values = {"tweed": "1.0", "torch": "2.13.0+cpu", "folder": True, "script": True, "port_taken": None}
    seen = {"reached": "10.0.0.1", "caller": "10.0.0.9", "clock": Clock(0.0, 0.01)}
    return HostInfo(**(values | seen | others))


def found(*found_hosts: HostInfo, hosts: tuple[str, ...] = ("a", "b")) -> list[str]:
    return list(problems(with_addresses(job(*hosts), found_hosts), found_hosts))


def test_hosts_that_are_alike_are_fine() -> None:
    assert (
        found(host_info(), host_info(reached="10.0.0.2", torch="2.13.0+cu130", clock=Clock(30.0, 0.1))) == []
    )


def test_hosts_are_reached_where_ssh_has_reached_them_and_this_one_where_it_called_from() -> None:
    found_hosts = [
        host_info(reached=None, caller=None),
        host_info(reached="10.0.0.2"),
        host_info(reached="10.0.0.3"),
    ]
    hosts = with_addresses(job("localhost", "b", "c=10.1.0.3"), found_hosts).hosts
    assert [host.address for host in hosts] == ["10.0.0.9", "10.0.0.2", "10.1.0.3"]
    assert with_addresses(job("a"), [host_info()]).hosts[0].address == "127.0.0.1"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"tweed": "0.9"},
            ["different versions of tweed: a 1.0, b 0.9", "on b:", "pip install tweed_train-1.0-*.whl"],
        ),
        (
            {"torch": "2.12.1"},
            ["different versions of torch: a 2.13.0, b 2.12.1", "torch==2.13.0"],
        ),
        ({"clock": Clock(-300.0, 0.1)}, ["the clock of b is 300 s behind that of a", "timedatectl set-ntp"]),
        ({"clock": Clock(300.0, 0.1)}, ["the clock of b is 300 s ahead of that of a"]),
        ({"folder": False, "script": False}, ["b: there is no folder /work", "--folder"]),
        ({"script": False}, ["b: there is no train.py in /work", "scp train.py b:/work/"]),
        ({"port_taken": "Address in use"}, ["b: port 29500", "Address in use", "--master-port 29501"]),
        ({"reached": "127.0.0.1"}, ["b: it was reached over loopback", "give b=ADDRESS"]),
        ({"reached": None, "caller": None}, ["b: it was reached"]),
        ({"reached": "fe80::1%eth0"}, ["b: it was reached", "give b=ADDRESS"]),
    ],
)
def test_one_host_that_is_not_fit_is_named_with_the_remedy(changed: dict[str, Any], words: list[str]) -> None:
    caller = {} if "caller" not in changed else {"caller": None}
    (line,) = found(host_info(**caller), host_info(**({"reached": "10.0.0.2"} | changed)))
    assert all(word in line for word in words), line


def test_a_host_without_torch_is_named_before_versions_are() -> None:
    lines = found(host_info(), host_info(reached="10.0.0.2", torch=None))
    assert "b: torch is not installed for /venv/bin/python there" in lines[0]


@pytest.mark.parametrize(
    ("code", "printed", "words"),
    [
        (255, "me@b: Permission denied (publickey).", ["does not take your key", "ssh-copy-id b"]),
        (255, "Host key verification failed.", ["`ssh b true` once by hand"]),
        (255, "ssh: Could not resolve hostname b: Name or service not known", ["~/.ssh/config"]),
        (255, "connect to host b port 22: Connection refused", ["systemctl start ssh on b", "ssh -p PORT"]),
        (255, "connect to host b port 22: No route to host", ["ping b"]),
        (255, "connect to host b port 22: Network is unreachable", ["ip route"]),
        (255, "connect to host b port 22: Connection timed out", ["firewall", "port 22"]),
        (255, "kex_exchange_identification: read", ["kex_exchange_identification", "ssh b true"]),
        (127, "bash: line 1: py: No such file or directory", ["py cannot be run there", "--python PATH"]),
        (1, "No module named tweed", ["py has no tweed there", "py -m pip install tweed_train-VERSION-"]),
        (1, "py: Error while finding module specification for 'tweed.launch.agent' "
            "(ModuleNotFoundError: No module named 'tweed')", ["py has no tweed there"]),
        (1, "(ModuleNotFoundError: No module named 'tweed.launch')", ["too old"]),
        (-9, "", ["has ended with exit code -9"]),
    ],
)  # fmt: skip
def test_why_a_host_has_no_agent(code: int, printed: str, words: list[str]) -> None:
    text = why_no_agent(Host("b"), code, printed, "py")
    assert text.startswith("b: ")
    assert all(word in text for word in words), text


# Lines


@given(text=st.text(st.sampled_from("ab\r\n€")), cuts=st.lists(st.integers(0, 60)))
def test_lines_are_the_same_however_they_come(text: str, cuts: list[int]) -> None:
    data = text.encode()
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    whole, pieces = Lines(), Lines()
    found = [line for a, b in pairwise(edges) for line in pieces.take(data[a:b])]
    assert found + pieces.rest() == whole.take(data) + whole.rest()
    assert "".join(found) == text.replace("\r", "").replace("\n", "")[: len("".join(found))]


def test_bars_are_seen_and_what_has_no_end_is_cut() -> None:
    lines = Lines()
    assert lines.take(b"10%\r20%\r") == ["10%"]
    assert lines.take(b"\nnext") == ["20%"]
    assert lines.rest() == ["next"]
    long = lines.take(b"x" * 200_000)
    assert sum(map(len, long)) + sum(map(len, lines.rest())) == 200_000
    assert lines.take(b"\xff\n") == ["\N{REPLACEMENT CHARACTER}"]


# JobExit


def test_a_job_has_ended_when_all_ranks_have() -> None:
    job_exit = JobExit(job("a", "b"))
    for rank in range(4):
        assert job_exit.poll(0.0) is None
        job_exit.handle_rank(rank, 0, 0.0)
    assert (job_exit.poll(0.0), job_exit.status, job_exit.culprit) == (0.0, 0, "")


@pytest.mark.parametrize(
    ("code", "status", "words"), [(7, 7, "ended with exit code 7"), (-9, 137, "was killed by SIGKILL")]
)
def test_the_first_that_fails_is_the_culprit_and_the_others_have_a_moment(
    code: int, status: int, words: str
) -> None:
    job_exit = JobExit(job("a", "b"))
    job_exit.handle_rank(0, 0, 1.0)
    job_exit.handle_rank(3, code, 2.0)
    job_exit.handle_rank(1, 1, 2.1)
    assert job_exit.poll(2.1) == pytest.approx(GRACE_S - 0.1)
    assert job_exit.poll(2.0 + GRACE_S) == 0.0
    assert (job_exit.status, job_exit.culprit) == (status, f"rank 3 on b {words}")


def test_a_host_that_is_lost_takes_its_ranks_along() -> None:
    job_exit = JobExit(job("a", "b"))
    job_exit.handle_rank(2, 0, 0.0)
    job_exit.handle_lost(1, "Connection reset", 1.0)
    assert job_exit.culprit == "the connection to b has ended, and with it rank 3: Connection reset"
    assert job_exit.status == 1
    done = JobExit(replace(job("a"), ranks_per_host=1))
    done.handle_rank(0, 0, 0.0)
    done.handle_lost(0, "its end", 0.0)
    assert done.status == 0
