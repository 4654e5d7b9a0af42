"""Metrics of real runs: two ranks over TCP, looked at from outside as a user would."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.cli.test_cli import tweed
from tests.metrics.test_outlets import scrape
from tweed import attach, metrics
from tweed.errors import Aborted
from tweed.metrics.live import watchers
from tweed.testbed import Ranks, Said, run_ranks, say
from tweed.torch.node import node
from tweed.torch.options import Options
from tweed.torch.rendezvous import Place, join

MEGABYTE = torch.ones(250_000)


@pytest.fixture(autouse=True)
def over_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWEED_TRANSPORT", "tcp")
    monkeypatch.setenv("TWEED_METRICS", "0.05")


def top(*words: str) -> int:
    """Runs `tweed top` in this process."""
    return tweed("top", *words)


def counts(rank: int, size: int) -> tuple[list[dict[str, Any]], str]:
    """The engine's counters after an all-reduce; and what they say once the group is closed."""
    store = dist.distributed_c10d._get_default_store()
    options = Options.resolve(None)
    place = Place(store, "own", rank, size, dist.default_pg_timeout)
    group, _ = join(node(options), place, options)
    metrics = group.metrics()
    dist.all_reduce(MEGABYTE.clone())
    metrics.post(f"from {rank}".encode())
    dist.barrier()
    while rank == 0 and len(metrics.posted()) < size:
        pass
    if rank == 0:
        assert metrics.posted() == {0: b"from 0", 1: b"from 1"}
    stats = metrics.stats()
    del group
    try:
        metrics.stats()
    except Aborted as error:
        return stats, str(error)
    return stats, ""


def test_the_engine_counts_and_does_not_stay_open_for_its_figures() -> None:
    outcome = run_ranks(counts, 2, backend="tweed")
    assert [gone for _, gone in outcome] == ["the group is gone"] * 2
    (own, link), (back, _) = (stats for stats, _ in outcome)
    assert (own["link"], link["link"], back["link"]) == ("self", "tcp", "tcp")
    assert link["bytes_out"] == back["bytes_in"] >= MEGABYTE.nbytes
    assert 0 < link["rtt_s"] < 60
    assert own["rtt_s"] is None
    assert own["bytes_out"] == own["retransmissions"] == 0


def trains(rank: int, size: int) -> None:
    """Trains until it is killed."""
    metrics.call("a test's run")
    model = torch.nn.Linear(100, 100)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attach(model, optimizer)
    say("begun")
    while True:
        model(torch.ones(2, 100)).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()


def begun(ranks: Ranks) -> None:
    """Returns when all ranks train."""
    waiting = set(range(ranks.size))
    while waiting:
        for event in ranks.poll(60):
            assert isinstance(event, Said), event
            waiting.discard(event.rank)


def test_tweed_top_and_prometheus_look_at_a_run_from_outside(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, room: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("TWEED_PROMETHEUS", str(port))
    with Ranks(trains, 2, backend="tweed") as ranks:
        begun(ranks)
        text = until_both_answer(capsys, lambda text: "not heard of" not in text and "holds up" in text)
        assert text.startswith("a test's run: 2 ranks, up ")
        assert "steps/s" in text
        assert "holds up the others" in text
        assert "from/to" in text
        assert " ms" in text
        told = until_both_answer(capsys, lambda text: len(json.loads(text)["rows"]) == 2, "--json")
        rows = json.loads(told)["rows"]
        assert [row["rank"] for row in rows] == [0, 1]
        assert rows[0]["links"][-1]["kind"] == "tcp"
        found = scrape(port)
        assert found["tweed_link_bytes_total"] > 0
        assert found["tweed_training_steps_total"] > 0
        ranks.kill(0, signal.SIGKILL)
        ranks.kill(1, signal.SIGKILL)
        while ranks.running():
            ranks.poll(30)
    (left,) = room.glob("tweed/*.sock")
    assert top("--once") == 2
    assert "there is no run of this user on this host" in capsys.readouterr().err
    assert not left.exists()


def until_both_answer(
    capsys: pytest.CaptureFixture[str], complete: Callable[[str], bool], *options: str
) -> str:
    """What `tweed top --once` prints as soon as no rank is missing: a loaded machine may answer too late."""
    while True:
        code, text = top("--once", *options), capsys.readouterr().out
        if code == 0 and complete(text):
            return text


def test_several_runs_are_listed_and_one_can_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    with Ranks(trains, 2, backend="tweed") as one, Ranks(trains, 2, backend="tweed") as other:
        begun(one)
        begun(other)
        until_both_are_told_of_two()
        assert top() == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 2
        process = lines[0].split()[2]
        assert top(process) == 0
        assert f"process {process}" in capsys.readouterr().out.splitlines()[0]
    assert top("1") == 2
    assert "no run with rank 0 in process 1" in capsys.readouterr().err


def until_both_are_told_of_two() -> None:
    found: list[object] = []
    while len(found) < 2:
        found = [watcher.__exit__() for watcher in watchers()]


def writes_events(rank: int, size: int) -> None:
    """Goes on until there are some."""
    more, folder = torch.ones(1), os.environ["TWEED_TENSORBOARD"]
    while more.item():
        if rank == 0:
            more = torch.tensor([0.0 if wrote(folder, "tweed_MB_per_s_out/rank_1") else 1.0])
        dist.broadcast(more, 0)


def wrote(folder: str, tag: str) -> bool:
    return Path(folder).exists() and tag in EventAccumulator(folder).Reload().Tags()["scalars"]


def test_tensorboard_has_events_of_all_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: Path
) -> None:
    monkeypatch.setenv("TWEED_TENSORBOARD", str(tmp_path / "events"))
    run_ranks(writes_events, 2, backend="tweed")
    events = EventAccumulator(str(tmp_path / "events")).Reload()
    assert {f"tweed_round_trip_ms/rank_{a}_to_{b}" for a, b in ((0, 1), (1, 0))} <= set(
        events.Tags()["scalars"]
    )
    assert list(room.glob("*/*")) == []


def threads(rank: int, size: int) -> list[str]:
    dist.barrier()  # a rank that leaves at once breaks Gloo's start in the others
    return [thread.name for thread in threading.enumerate()]


def test_no_thread_where_nothing_is_wanted(monkeypatch: pytest.MonkeyPatch, room: Path) -> None:
    monkeypatch.setenv("TWEED_METRICS", "0")
    assert run_ranks(threads, 2, backend="tweed") == [["MainThread"]] * 2
    monkeypatch.delenv("TWEED_METRICS")
    assert run_ranks(threads, 2, backend="gloo") == [["MainThread"]] * 2
    assert run_ranks(threads, 2, backend="tweed") == [["MainThread", "tweed-metrics"]] * 2
    assert list(room.glob("*/*")) == []
