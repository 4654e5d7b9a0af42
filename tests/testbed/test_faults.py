"""Faults as a value: read and written, drawn, and when each is due. Then done to processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.errors import UsageError
from tweed.testbed import Network, Ranks, opened
from tweed.testbed.fault_injector import FaultInjector
from tweed.testbed.faults import LONG_S, SHORT_S, Fault, Plan, Progress
from tweed.testbed.restarts import pid, restarted, set_clock

spans = st.integers(0, 10**6).map(lambda ms: ms / 1000)
whens = st.builds(dict, after_s=spans) | st.builds(dict, after_steps=st.integers(0, 10**6))
who = st.integers(0, 99)


@st.composite
def faults(draw: st.DrawFn) -> Fault:
    kind = draw(st.sampled_from(["kill", "stop", "cut", "clock", "disk"]))
    count = {"kill": draw(st.integers(1, 4)), "cut": 2}.get(kind, 1)
    members = draw(st.lists(who, min_size=count, max_size=count, unique=True))
    seconds = {"kill": 0.0, "clock": draw(spans) * draw(st.sampled_from([1, -1]))}.get(kind, draw(spans))
    one_way = kind == "cut" and draw(st.booleans())
    return Fault(kind, tuple(members), seconds, **draw(whens), one_way=one_way)


plans = st.lists(faults(), max_size=6).map(lambda found: Plan(tuple(found)))


@given(plans)
def test_what_is_written_is_read_again(plan: Plan) -> None:
    assert Plan.parse(str(plan)) == plan


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("after 1.5s kill 0,2", Fault("kill", (0, 2), after_s=1.5)),
        ("after  1 step\tstop 3 for 0.3s", Fault("stop", (3,), 0.3, after_steps=1)),
        ("after 20 steps cut 0-3 for 1s", Fault("cut", (0, 3), 1.0, after_steps=20)),
        ("after 0s cut 3>0 for 2s", Fault("cut", (3, 0), 2.0, one_way=True)),
        ("after 0s clock 1 by -60s", Fault("clock", (1,), -60.0)),
        ("after 0s disk 1 for 2s", Fault("disk", (1,), 2.0)),
    ],
)
def test_faults_as_text(text: str, fault: Fault) -> None:
    assert Fault.parse(text) == fault


@pytest.mark.parametrize(
    "text",
    [
        "kill 0", "after 1s kill", "after 1s kill 0 for 1s", "after 1s stop 0", "after 1s stop 0 by 1s",
        "after 1s stop 0,1 for 1s", "after 1s stop 0 for -1s", "after 1s cut 0-0 for 1s",
        "after 1s cut 0 for 1s",
        "after 1s kill 0,0", "after 1.2.3s kill 0", "after 1s clock 0 for 1s", "after -1s kill 0",
    ],
)  # fmt: skip
def test_what_is_no_fault_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="fault"):
        Plan.parse(text)


@given(st.integers(2, 9), st.integers(0, 2**32), *[st.integers(0, 20)] * 3)
def test_plans_are_drawn_as_asked(members: int, seed: int, kills: int, stops: int, cuts: int) -> None:
    def draw() -> Plan:
        return Plan.drawn(members, {"kill": kills, "stop": stops, "cut": cuts}, seed=seed, mean_s=0.5)

    found = draw().faults
    assert draw().faults == found
    counts = {kind: len([one for one in found if one.kind == kind]) for kind in ("kill", "stop", "cut")}
    assert counts == {"kill": kills, "stop": stops, "cut": cuts}
    stopped = [fault.seconds for fault in found if fault.kind == "stop"]
    assert (stopped.count(LONG_S), stopped.count(SHORT_S)) == (stops - stops // 2, stops // 2)
    assert all(max(fault.members) < members for fault in found)


def test_nothing_befalls_who_is_spared() -> None:
    plan = Plan.drawn(4, {"kill": 50, "cut": 20}, seed=1, mean_steps=2, spared=[1])
    assert {member for fault in plan.faults for member in fault.members} == {0, 2, 3}


def test_steps_add_up() -> None:
    plan = Plan.parse("after 3 steps kill 0; after 0s kill 1; after 2 steps kill 2")
    assert [step for step, _ in plan.by_step()] == [3, 3, 5]


@given(plans, st.lists(st.tuples(spans, st.integers(0, 1000)), min_size=1, max_size=20))
def test_each_fault_begins_in_its_turn_and_none_too_early(
    plan: Plan, moments: list[tuple[float, int]]
) -> None:
    progress, now, step = Progress(plan, 0.0, 0), 0.0, 0
    since, begun, over = (0.0, 0), list[Fault](), list[Fault]()
    for more_s, more in moments:
        now, step = now + more_s, step + more
        over += progress.over(now)
        if (fault := progress.due(now, step)) is not None:
            assert now >= since[0] + fault.after_s and step >= since[1] + fault.after_steps
            progress.begun(now, step)
            begun.append(fault)
            since = (now, step)
    assert tuple(begun) == plan.faults[: len(begun)]
    over += progress.over(float("inf"))
    assert sorted(map(str, over)) == sorted(str(one) for one in begun if one.kind in ("stop", "cut", "disk"))
    assert progress.done == (len(begun) == len(plan.faults))


# Done to processes.


def until_done(injector: FaultInjector) -> None:
    with injector:
        while not injector.done:
            injector.turn(0)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def state(process: subprocess.Popen[bytes]) -> str:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2][0]


def test_a_stop_ends_with_the_block_and_a_kill_with_the_process(child: subprocess.Popen[bytes]) -> None:
    with FaultInjector(Plan.parse("after 0s stop 0 for 3600s"), 1, lambda member: child.pid) as injector:
        assert injector.turn(0) is not None
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        assert (state(child), injector.done) == ("T", False)
    os.waitid(os.P_PID, child.pid, os.WCONTINUED)
    until_done(FaultInjector(Plan.parse("after 0s kill 0"), 1, lambda member: child.pid))
    assert child.wait() == -signal.SIGKILL


FILLS = """
import sys
for line in sys.stdin:
    try:
        with open(sys.argv[1], "wb") as file:
            file.write(b"x")
        print("written", flush=True)
    except OSError as error:
        print(type(error).__name__, flush=True)
"""


def test_a_full_disk_is_so_for_one_process_and_for_a_while(tmp_path: Path) -> None:
    words, pipe = [sys.executable, "-c", FILLS, str(tmp_path / "file")], subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin and process.stdout

        def said() -> str:
            print(file=process.stdin, flush=True)
            return process.stdout.readline().strip()

        plan, found = Plan.parse("after 0s disk 0 for 3600s"), [said()]
        with FaultInjector(plan, 1, lambda member: process.pid, full_disks=True) as injector:
            injector.turn(0)
            found.append(said())
        assert [*found, said()] == ["written", "OSError", "written"]
        (tmp_path / "another").write_bytes(b"x")
        process.kill()


def clocks(life: int, rank: int, folder: Path) -> tuple[float, float]:
    """What its clock shows, beside that of the launcher, when it is set and in the next life."""
    real, place = time.time, folder / "before"
    if life == 0:
        set_clock(folder, rank, -3600.0)
        place.write_text(str(time.time() - float(os.popen("date +%s.%N").read())))
        os.kill(os.getpid(), signal.SIGKILL)
    return float(place.read_text()), real() - float(os.popen("date +%s.%N").read())


def lives_with_clocks(rank: int, size: int, folder: Path) -> tuple[float, float]:
    found: tuple[float, float] = restarted(clocks, folder, rank, folder)
    return found


def test_a_clock_that_is_set_is_so_in_this_life_and_the_next(tmp_path: Path) -> None:
    with Ranks(lives_with_clocks, 1, tmp_path) as ranks:
        before, after = ranks.join(60)[0]
    assert round(before / 3600) == round(after / 3600) == -1
    until_done(
        FaultInjector(
            Plan.parse("after 0s clock 0 by 60s"), 1, lambda one: pid(tmp_path, one), folder=tmp_path
        )
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("after 0s cut 0-1 for 1s", "`after 0s cut 0-1 for 1s` cannot be done to these processes"),
        ("after 0s clock 0 by 1s", "faults are kill, stop"),
        ("after 0s disk 0 for 1s", "faults are kill, stop"),
        ("after 0s kill 2", "only 2 members"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        FaultInjector(Plan.parse(text), 2, lambda member: 0)


COUNTS = "import socket; s = socket.socket(type=2); s.bind(('', 5000)); print('here', flush=True)\n" + (
    "while True: print(s.recv(9).decode(), flush=True)"
)


def test_a_cut_between_two_is_that_way_alone() -> None:
    with opened(Network(), 3) as bed:
        words = bed.command(0, sys.executable, "-c", COUNTS)
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as hears:
            assert hears.stdout and hears.stdout.readline() == "here\n"

            def said(rank: int, what: str) -> None:
                place = (bed.hosts[0].address, 5000)
                send = f"import socket; socket.socket(type=2).sendto(b'{what}', {place})"
                subprocess.run(bed.command(rank, sys.executable, "-c", send), check=True)

            def heard(count: int) -> list[str]:
                return [hears.stdout.readline().strip() for _ in range(count)]  # type: ignore[union-attr]

            said(1, "first")  # each learns the other's Ethernet address, which is asked for both ways
            said(2, "second")
            assert heard(2) == ["first", "second"]
            plan = Plan.parse("after 0s cut 1>0 for 3600s; after 0s cut 0>2 for 3600s")
            with FaultInjector(plan, 3, lambda member: 0, bed=bed) as injector:
                assert injector.turn(0) and injector.turn(0)
                said(1, "lost")
                said(2, "other")
            said(1, "healed")
            assert heard(2) == ["other", "healed"]
            assert bed.counters()[1].lost_packets > 0
            hears.kill()
