"""`tweed train --elastic`: workers die, leave and join while the job goes on, and its result is the same."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from tweed.elastic.state import State
from tweed.errors import DataError, StrategyError, UsageError
from tweed.testbed import Ended, Failed, RankFailed, Ranks, Said
from tweed.train import checkpoint, elastic_launch
from tweed.train.elastic_launch import ElasticLauncher, Here, In, _Watched, _work
from tweed.train.elastic_worker import ElasticWorker, about, told
from tweed.train.folder import RunFolder, latest
from tweed.train.loop import due
from tweed.train.request import Request, begin, fill
from tweed.train.settings import OURS, Settings

#: Who was killed is a member again after some hundred steps, also where other work leaves little time to all.
STEPS, BATCH = 450, 48
TASK = {"task": "digits", "steps": STEPS}


def launched(
    runs: Path,
    workers: int,
    send: tuple[signal.Signals, tuple[int, ...]] | None = None,
    strategy: str = "every_step",
) -> tuple[Any, Any]:
    """Figures and notes of a run; workers, by their numbers, get a signal when there are figures."""
    asked = TASK | {"workers": workers, "batch_size": BATCH // workers, "strategy": strategy}
    settings, folder = begin(Request(asked, name="run"), runs, lambda line: None)
    notes: list[str] = []

    def show(figures: dict[str, Any]) -> None:
        nonlocal send
        if send is not None:
            (number, victims), send = send, None
            ranks = [one for one in psutil.Process().children(recursive=True) if _is_rank(one)]
            _witness, *others = sorted(ranks, key=lambda process: process.pid)
            for victim in victims:
                others[victim].send_signal(number)

    ElasticLauncher(1, 4, notes.append).launch(settings, folder, show)
    return folder.figures(), notes


def _is_rank(process: psutil.Process) -> bool:
    """A child of the fork server, which is a child of this process."""
    parent = process.parent()
    return parent is not None and parent != psutil.Process()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """One worker alone with the total batch."""
    figures: list[dict[str, Any]] = launched(tmp_path_factory.mktemp("alone"), 1)[0]
    return figures


@pytest.mark.parametrize(
    ("number", "victims", "word", "members"),
    [
        (signal.SIGKILL, (0,), "worker 0 starts anew", 3),
        (signal.SIGKILL, (2,), "worker 2 starts anew", 3),
        (signal.SIGKILL, (0, 1), "worker 1 starts anew", 3),
        (signal.SIGTERM, (0,), "worker 0 has left in good order", 2),
    ],
)
def test_a_run_ends_as_if_nobody_had_died_or_left(
    tmp_path: Path,
    undisturbed: list[dict[str, Any]],
    number: signal.Signals,
    victims: tuple[int, ...],
    word: str,
    members: int,
) -> None:
    figures, notes = launched(tmp_path, 3, (number, victims))
    assert any(word in note for note in notes), notes
    assert figures[-1]["members"] == members and figures[-1]["epoch"] > 1
    by_rank = figures[-1]["timeline"]
    assert len(by_rank) == members and [step for step in by_rank if step]  # who joined late may have none
    for step in filter(None, by_rank):
        assert step["step"] >= STEPS // 2
        assert {span["what"] for span in step["spans"]} == {"under way", "wait"}
    assert_near(figures, undisturbed)


def digested(
    rank: int,
    size: int,
    settings: Settings,
    path: Path,
    limits: tuple[int, int],
    witness: str,
    rendezvous: Path,
) -> bool:
    """What a worker does, and a file whose name says with which model it has ended."""
    ends = ElasticWorker.run

    def run(self: ElasticWorker) -> None:
        ends(self)
        digest = State({"model": self.model.state_dict()}).digests()[0].hex()
        (path / f"ended-{os.getpid()}-{digest}").touch()

    ElasticWorker.run = run  # type: ignore[method-assign]  # in this process alone, which ends with it
    return _work(rank, size, settings, path, limits, witness, rendezvous)


@pytest.mark.parametrize(
    ("strategy", "every", "victims"),
    [("local_top_k:8", 8, (0,)), ("diloco:10", 10, (0, 2)), ("powersgd", 1, (1,)), ("top_k:0.1", 1, (0,))],
)
def test_strategies_go_on_as_they_do_under_attach_with_one_model_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str, every: int, victims: tuple[int, ...]
) -> None:
    monkeypatch.setattr(elastic_launch, "_work", digested)
    figures, notes = launched(tmp_path, 3, (signal.SIGKILL, victims), strategy)
    assert [note for note in notes if "starts anew" in note]
    steps = [row["step"] for row in figures]
    assert steps == sorted(set(steps)) and not any(step % every for step in steps)
    assert STEPS <= steps[-1] < STEPS + every
    assert figures[-1]["epoch"] > 1 and figures[-1]["accuracy"] > 0.8
    assert figures[-1]["loss"] < figures[0]["loss"]
    ended = [path.name.split("-") for path in tmp_path.glob("run/ended-*")]
    assert len(ended) == figures[-1]["members"] > 1
    assert len({digest for _, _, digest in ended}) == 1


class Interrupted(Exception):
    """Stands for Ctrl-C."""


def test_a_run_that_was_stopped_goes_on_with_fewer_workers(
    tmp_path: Path, undisturbed: list[dict[str, Any]]
) -> None:
    settings, folder = begin(Request(TASK | {"workers": 3, "batch_size": 16}, name="run"), tmp_path, print)

    def show(figures: dict[str, Any]) -> None:
        if latest(folder.checkpoints(OURS)) > 0:
            raise Interrupted

    with pytest.raises(Interrupted):
        ElasticLauncher(1, 4, print).launch(settings, folder, show)
    ElasticLauncher(1, 4, print, begin=2).launch(settings, folder, lambda figures: None)
    figures = folder.figures()
    assert figures[-1]["members"] == 2 and figures[-1]["bytes_per_worker"] > figures[-2]["bytes_per_worker"]
    assert_near(figures, undisturbed)
    first, second = folder.epoch_lines()  # each run begins with one
    assert (first["members"], second["members"]) == (3, 2) and 0 == first["step"] < second["step"]
    with pytest.raises(UsageError, match="without --elastic"):
        checkpoint.load(folder.checkpoints(OURS))


def assert_near(figures: list[dict[str, Any]], undisturbed: list[dict[str, Any]]) -> None:
    """Each comes once, and is that of a run in which nobody dies."""
    assert [row["step"] for row in figures] == [row["step"] for row in undisturbed]
    for row, expected in zip(figures, undisturbed, strict=True):
        assert row["loss"] == pytest.approx(expected["loss"], rel=1e-3, abs=1e-4)
        if expected["test_loss"] is not None:
            assert row["test_loss"] == pytest.approx(expected["test_loss"], abs=1e-3)


def test_a_full_disk_leaves_whole_lines_of_figures(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.append({"step": 1})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (folder.metrics.stat().st_size + 5, hard))
        with pytest.raises(OSError, match="5 of 12 bytes could be written"):
            folder.append({"step": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    folder.append({"step": 3})
    assert folder.figures() == [{"step": 1}, {"step": 3}]


class FakeRanks(Ranks):
    """None runs; who was started anew is noted."""

    def __init__(self) -> None:
        self.restarted: list[int] = []

    def restart(self, rank: int) -> None:
        """See `Ranks`."""
        self.restarted.append(rank)

    def blame(self, failures: list[Failed]) -> Failed:
        """See `Ranks`."""
        return failures[0]


def watched() -> tuple[_Watched, FakeRanks]:
    ranks = FakeRanks()
    return _Watched(ranks, lambda figures: None, lambda line: None), ranks


def test_who_dies_again_and_again_before_it_is_a_member_ends_the_run() -> None:
    seen, ranks = watched()
    for event in (Said(0, Here("a:1")), Said(1, Here("b:2"))):
        seen.handle(event)
    for _ in range(3):
        seen.handle(Failed(0, "died"))
    seen.handle(Said(0, In()))
    for _ in range(3):
        seen.handle(Failed(0, "died"))
    assert ranks.restarted == [0] * 6
    with pytest.raises(RankFailed, match="died"):
        seen.handle(Failed(0, "died"))


def test_nobody_is_started_anew_without_others_or_after_the_end_or_for_a_wrong_setting() -> None:
    seen, ranks = watched()
    seen.handle(Said(0, Here("a:1")))
    with pytest.raises(RankFailed):
        seen.handle(Failed(0, "died"))
    seen.handle(Said(1, Here("b:2")))
    with pytest.raises(RankFailed):
        seen.handle(Failed(0, "wrong", UsageError("wrong")))
    seen.handle(Ended(1, True))
    seen.handle(Failed(0, "too late"))
    assert ranks.restarted == [] and seen.done


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"strategy": "cser"}, r"exchange=.step. does not go with elastic=Elastic"),
        ({"partition": "by_label"}, "by_label gives each worker data of its own"),
        ({"against": "ddp-gloo"}, "omit --against"),
        ({"backend": "gloo"}, "omit --against and --backend"),
        ({"network": "rate=10mbit"}, "omit --network"),
        ({"workers": 5}, "2:4 does not allow --workers"),
        ({"workers": 1}, "2:4 does not allow --workers"),
    ],
)
def test_what_members_who_come_and_go_cannot_do_is_said_before(given: dict[str, Any], why: str) -> None:
    with pytest.raises((UsageError, StrategyError), match=why):
        ElasticLauncher(2, 4, print).check(fill(TASK | given))


@pytest.mark.parametrize("text", ["", "4", "5:2", "0:3", "a:b", "1:2:3", "-1:2"])
def test_what_is_no_range_of_members_is_an_error(text: str) -> None:
    with pytest.raises(UsageError, match="LEAST:MOST"):
        ElasticLauncher.parse(text, print)


def test_a_run_tells_its_settings_to_who_joins(tmp_path: Path) -> None:
    settings = fill(TASK)
    assert told(about(settings, RunFolder(tmp_path / "run"))) == ("run", settings)
    for text in ("", "[]", "{}", '{"name": "a", "settings": {"task": "digits"}}'):
        with pytest.raises(DataError, match="no run of `tweed train`"):
            told(text)


@pytest.mark.parametrize("steps", [1, 7, 16, 100, 300, 5000])
def test_scores_come_eight_times_or_more_and_with_the_last_step(steps: int) -> None:
    figures, scores = zip(*(due(step, steps) for step in range(steps + 1)), strict=True)
    assert not figures[0] and scores[-1]
    assert all(has for has, whole in zip(figures, scores, strict=True) if whole)
    assert min(steps, 8) <= sum(scores) <= sum(figures)
