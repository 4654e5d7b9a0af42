"""The thread that hands metrics on, over groups that are none; and what a user may option."""

from __future__ import annotations

import os
import random
import resource
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.metrics.cases import FakeGroup
from tweed.errors import UsageError
from tweed.metrics import MetricsOptions, job, publish, stop
from tweed.metrics.live import Watcher, watchers
from tweed.metrics.options import address
from tweed.metrics.publish import Gathering

QUICK = MetricsOptions(0.01)


@pytest.fixture(autouse=True)
def stopped() -> Iterator[None]:
    """No thread of one test lives on in another."""
    yield
    stop()


def metrics_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "tweed-metrics"]


def watcher() -> Watcher:
    """Of the only run, once it is there."""
    while not (found := list(watchers())):
        pass
    return found[0]


def test_rank_0_lays_the_rows_of_all_side_by_side() -> None:
    board: dict[int, bytes] = {}
    groups = [Gathering(FakeGroup(rank, 3, board), 100.0) for rank in range(3)]
    groups[0].publish_row(101.0)
    groups[2].publish_row(101.5)
    matrix = groups[0].matrix(102.0)
    assert (matrix.ranks, matrix.up_s, matrix.pid) == (3, 2.0, os.getpid())
    assert [(row.rank, row.host, row.up_s) for row in matrix.rows] == [(0, "host0", 1.0), (2, "host2", 1.5)]
    assert [link.peer for link in matrix.rows[0].links] == [1, 2]


def test_silence_is_counted_from_the_last_new_row() -> None:
    board: dict[int, bytes] = {}
    groups = [Gathering(FakeGroup(rank, 2, board), 100.0) for rank in range(2)]
    for group in groups:
        group.publish_row(101.0)
    groups[0].matrix(101.0)
    groups[0].publish_row(104.0)
    assert [row.silent_s for row in groups[0].matrix(104.0).rows] == [0.0, 3.0]


def test_a_row_tells_of_training_and_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counted:
        steps, exchanges, bytes_exchanged, waiting_s, encoding_s = 3, 2, 100, 0.5, 0.25

    monkeypatch.setattr(job, "_counts", None)
    monkeypatch.setattr(job, "_name", None)
    group = Gathering(FakeGroup(0), 0.0)
    group.publish_row(1.0)
    assert group.matrix(1.0).rows[0].training is None
    job.follow(Counted())
    job.call("my run")
    group.publish_row(2.0)
    matrix = group.matrix(2.0)
    assert matrix.run == "my run"
    assert matrix.rows[0].training is not None
    assert matrix.rows[0].training.steps == 3


def test_the_thread_ends_with_its_group_and_leaves_nothing(room: Path) -> None:
    group = FakeGroup(0)
    publish(group, QUICK)
    with watcher() as client:
        first = client.next(10)
        assert first is not None and first.ranks == 2
        group.gone = True
        with pytest.raises(EOFError):
            while client.next(10):
                pass
    stop()
    assert metrics_threads() == []
    assert list(room.glob("*/*")) == []


def test_a_later_group_takes_over() -> None:
    first, second = FakeGroup(0), FakeGroup(0, 4)
    publish(first, QUICK)
    publish(second, QUICK)
    assert len(metrics_threads()) == 1
    first.gone = True
    ranks = 0
    while ranks != 4:
        with watcher() as client:
            try:
                matrix = client.next(10)
            except EOFError:
                continue
            ranks = matrix.ranks if matrix else 0
    stop()
    assert metrics_threads() == []


def test_stop_tells_the_last_figures(room: Path) -> None:
    group = FakeGroup(0)
    publish(group, MetricsOptions(3600.0))
    stop()
    assert group.board == {}  # it lived for less than the thread waits before its first row
    publish(group, QUICK)
    with watcher() as client:
        client.next(10)
        group.count = 77
        stop()
        seen = []
        with pytest.raises(EOFError):
            while matrix := client.next(10):
                seen.append(matrix.rows[0].links[0].bytes_out)
    assert seen[-1] == 77


@pytest.mark.parametrize(
    ("group", "options"), [(FakeGroup(0, 1), QUICK), (FakeGroup(0), MetricsOptions(0.0))]
)
def test_nothing_starts_for_a_rank_alone_or_when_nothing_is_wanted(
    group: FakeGroup, options: MetricsOptions
) -> None:
    publish(group, options)
    assert metrics_threads() == []


def test_what_goes_wrong_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(FakeGroup):
        def post(self, text: bytes) -> None:
            raise ValueError("a defect")

    publish(Broken(1), QUICK)
    publish(group := FakeGroup(0), QUICK)
    with watcher() as client:
        while client.next(10) is None:
            pass
    group.gone = True
    stop()
    assert "the metrics of this group are not told any further" in caplog.text


def test_a_row_too_long_for_the_engine_has_the_busiest_links_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Crowd(FakeGroup):
        """Numbers that compress badly; the higher the rank, the more bytes."""

        def _entry(self, peer: int) -> dict[str, Any]:
            entry = super()._entry(peer)
            draw = random.Random(peer + self.count)
            names = ("messages_out", "messages_in", "retransmissions", "packets", "times_last")
            return entry | {name: draw.getrandbits(60) for name in names} | {"bytes_out": peer << 40}

    group = Gathering(crowd := Crowd(0, 3000), 0.0)
    for now in (1.0, 2.0):
        crowd.count += 1
        group.publish_row(now)
        assert len(crowd.board[0]) <= 64 << 10
    links = group.matrix(2.0).rows[0].links
    assert [link.peer for link in links] == list(range(3000 - len(links), 3000))
    assert len(links) > 300
    assert len(caplog.records) == 1
    assert "only those of the busiest links are told" in caplog.text


def test_descriptors_beyond_1023_are_waited_for() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip("this system allows fewer descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        publish(FakeGroup(0), QUICK)
        with watcher() as client:
            assert client.next(10) is not None
        stop()
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_taken_port_is_a_warning_and_the_rest_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        publish(FakeGroup(0), MetricsOptions(0.01, prometheus=str(taken.getsockname()[1])))
        with watcher() as client:
            assert client.next(10) is not None
        stop()
    assert "cannot serve Prometheus on 127.0.0.1" in caplog.text
    assert "the run goes on without" in caplog.text


def test_a_fork_has_no_thread_and_does_not_touch_the_socket(room: Path) -> None:
    publish(FakeGroup(0), QUICK)
    with watcher() as client:
        client.next(10)
        if (child := os.fork()) == 0:
            stop()  # as at the exit of the child
            os._exit(len(metrics_threads()))
        assert os.waitpid(child, 0)[1] == 0
        assert client.path.exists()
        while client.next(0.001):
            pass
        assert client.next(10) is not None
    stop()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("9400", ("127.0.0.1", 9400)),
        (":9400", ("127.0.0.1", 9400)),
        ("10.0.0.1:0", ("10.0.0.1", 0)),
        ("[::1]:80", ("::1", 80)),
    ],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    assert address(text) == expected


@pytest.mark.parametrize("text", ["", "here", "host:", "host:port", "99999", "-1"])
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="must be PORT or HOST:PORT"):
        address(text)


def test_wishes_that_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="seconds, or 0 for none"):
        MetricsOptions(-1.0)
    with pytest.raises(UsageError, match="metrics is 0"):
        MetricsOptions(0.0, tensorboard="folder")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"prometheus_client: pip install .*\[metrics\]'"):
        MetricsOptions(prometheus="9400")
    with pytest.raises(UsageError, match=r"tensorboard: pip install .*\[metrics\]'"):
        MetricsOptions(tensorboard="folder")
