"""Real workers: both sides learn the same, and an interrupted run ends as if it had not been."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from tweed.exchange.encoding import unpacked
from tweed.testbed import RankFailed
from tweed.train.folder import RunFolder, latest
from tweed.train.launch import launch
from tweed.train.request import Request, begin
from tweed.train.settings import OURS, Settings

STEPS = 16  # eight evaluations, one every two steps


class Interrupted(Exception):
    """Stands for Ctrl-C: it leaves `launch` at a certain figure."""


def start(runs: Path, name: str, **given: Any) -> tuple[Settings, RunFolder]:
    asked = {"task": "digits", "workers": 2, "steps": STEPS, "backend": "gloo"} | given
    return begin(Request(asked, name=name), runs, lambda line: None)


def resume(runs: Path, name: str) -> tuple[Settings, RunFolder]:
    return begin(Request({}, name=name, resume=True), runs, lambda line: None)


def interrupt_at(step: int) -> Any:
    def show(figures: dict[str, Any]) -> None:
        if figures["step"] >= step:
            raise Interrupted

    return show


def ignore(figures: dict[str, Any]) -> None:
    pass


def end_state(folder: RunFolder, side: str) -> list[dict[str, Any]]:
    """What each rank stored at the end, without the clocks."""
    files = sorted((folder.checkpoints(side) / f"step-{STEPS:08d}").iterdir())
    states = [unpacked(file.read_bytes()) for file in files]
    for state in states:
        state["meter"] = state["meter"]["exchanged"]
        for clock in ("waiting_s", "encoding_s"):
            state["side"].get("stats", {}).pop(clock, None)
    return states


def assert_equal(one: Any, other: Any) -> None:
    """Bit for bit, through dicts and lists."""
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_equal(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            assert_equal(left, right)
    elif hasattr(one, "tobytes"):
        assert one.tobytes() == other.tobytes()
    else:
        assert one == other


def scores(folder: RunFolder) -> list[tuple[Any, ...]]:
    keys = ("side", "step", "loss", "test_loss", "accuracy", "bytes_per_worker", "aside_bytes_per_worker")
    return [tuple(told[key] for key in keys) for told in folder.figures()]


@pytest.mark.parametrize("backend", ["tweed", "gloo"])
def test_both_sides_learn_the_same_at_two_ranks(tmp_path: Path, backend: str) -> None:
    settings, folder = start(tmp_path, "a", backend=backend, against="ddp-gloo")
    launch(settings, folder, ignore)
    ours, theirs = (end_state(folder, side) for side in settings.sides)
    assert_equal([state["model"] for state in ours], [state["model"] for state in theirs])
    assert_equal(ours[0]["model"], ours[1]["model"])
    sent = [
        [told["bytes_per_worker"] for told in folder.figures() if told["side"] == side]
        for side in settings.sides
    ]
    assert sent[0] == pytest.approx(sent[1], rel=1e-3)  # the first broadcast counts at both; ours has padding
    last = folder.figures()[-1]
    assert last["accuracy"] > 0.3
    assert last["samples"] == STEPS * 2 * 16
    ends = {told["side"]: told["timeline"] for told in folder.figures() if told["step"] == STEPS}
    for (side, steps), kinds in zip(ends.items(), (("shm", "self"), ()), strict=True):
        for rank, step in enumerate(steps):
            waits = [span for span in step["spans"] if span["what"] == "wait"]
            assert step["step"] >= STEPS // 2 and waits, (side, rank)
            assert all(0 <= span["began_s"] <= span["ended_s"] <= step["seconds"] for span in step["spans"])
            assert all(span["last"][1] in kinds for span in waits if span["last"] is not None)


@pytest.mark.parametrize(
    "asked",
    [
        {"backend": "tweed", "workers": 3},
        {"backend": "tweed", "strategy": "local_steps:3"},
        {"backend": "tweed", "strategy": "diloco(every=4, delay=3, fragments=2)"},
        {"backend": "gloo", "against": "ddp-gloo"},
    ],
    ids=lambda asked: " ".join(map(str, asked.values())),
)
def test_an_interrupted_run_ends_as_if_it_had_not_been(tmp_path: Path, asked: dict[str, Any]) -> None:
    whole = start(tmp_path, "whole", **asked)
    launch(*whole, ignore)
    _, folder = start(tmp_path, "broken", **asked)
    with pytest.raises(Interrupted):
        launch(*resume(tmp_path, "broken"), interrupt_at(7))
    assert latest(folder.checkpoints(OURS)) in (4, 6)
    launch(*resume(tmp_path, "broken"), ignore)
    for side in whole[0].sides:
        assert_equal(end_state(folder, side), end_state(whole[1], side))
    assert scores(folder) == scores(whole[1])


def test_a_run_over_wires_goes_on_by_the_schedules_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWEED_TRANSPORT", "tcp")  # what links are measured to do differs from start to start
    asked = {"backend": "tweed", "workers": 3}
    _, folder = start(tmp_path, "broken", **asked)
    with pytest.raises(Interrupted):
        launch(*resume(tmp_path, "broken"), interrupt_at(7))
    kept = (folder.checkpoints(OURS) / "plan.json").read_text()
    launch(*resume(tmp_path, "broken"), ignore)
    assert [state["side"]["plan"] for state in end_state(folder, OURS)] == [kept] * 3


@pytest.mark.usefixtures("namespaces")
def test_both_sides_cross_a_shaped_network_and_a_resumed_run_counts_on(tmp_path: Path) -> None:
    network = "rate=1gbit,loss=0.1%"
    settings, folder = start(tmp_path, "a", against="ddp-gloo", network=network)
    with pytest.raises(Interrupted):
        launch(settings, folder, interrupt_at(7))
    launch(*resume(tmp_path, "a"), ignore)
    for side in settings.sides:
        told = [line for line in folder.figures() if line["side"] == side]
        measured = [line["link_bytes_per_worker"] for line in told]
        assert measured == sorted(measured)
        assert measured[-1] > told[-1]["bytes_per_worker"]
    assert folder.findings() == []
    assert len(folder.links.read_text().splitlines()) == 2


def test_a_finished_side_is_not_trained_again(tmp_path: Path) -> None:
    launch(*start(tmp_path, "a"), ignore)
    shown: list[dict[str, Any]] = []
    launch(*resume(tmp_path, "a"), shown.append)
    assert shown == []


def test_a_worker_that_fails_is_named(tmp_path: Path) -> None:
    settings, folder = start(tmp_path, "a")
    folder.checkpoints(OURS).mkdir(parents=True)
    (folder.checkpoints(OURS) / "latest").write_text("4")  # names a checkpoint that is not there
    with pytest.raises(RankFailed, match=r"(?s)rank \d of 2 failed.*step-00000004"):
        launch(settings, folder, ignore)


def test_killed_launcher_leaves_no_worker_and_a_run_to_resume(tmp_path: Path) -> None:
    whole = start(tmp_path, "whole", steps=STEPS)
    launch(*whole, ignore)
    options = f"--task digits --workers 2 --steps {STEPS} --backend gloo --name broken".split()
    code = "from tweed.cli import main; main()"
    command = [sys.executable, "-c", code, "train", *options]
    folder = RunFolder(tmp_path / "runs" / "broken")
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        told = next(line for line in launcher.stdout if "step 6/" in line)
        family = psutil.Process(launcher.pid).children(recursive=True)
        launcher.kill()
    assert told
    assert len(family) >= 2
    _, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []
    launch(*resume(tmp_path / "runs", "broken"), ignore)
    assert_equal(end_state(folder, OURS), end_state(whole[1], OURS))
    assert scores(folder) == scores(whole[1])
