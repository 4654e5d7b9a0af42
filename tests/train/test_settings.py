"""Settings, requests and batches: pure."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.data import SETS
from tweed.data.sets import checksum
from tweed.errors import DataError, NoTestbed, StrategyError, UsageError
from tweed.testbed import namespaces
from tweed.train.request import Request, begin, fill, free_name, steps_of
from tweed.train.settings import OURS, Settings, differences
from tweed.train.shard import Batches
from tweed.train.tasks import TASKS, row


def test_defaults_are_the_tasks() -> None:
    settings = fill({"task": "digits"})
    assert (settings.steps, settings.batch_size, settings.lr) == (300, 16, 0.05)
    assert (settings.workers, settings.strategy, settings.backend) == (4, "every_step", "tweed")


def test_what_is_given_wins() -> None:
    assert fill({"task": "digits", "steps": 7, "workers": 2}).steps == 7


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"task": "cifar"}, "no task 'cifar'; there are fashion-mnist, digits, shakespeare"),
        ({"workers": 0}, "workers is 0, but must be at least 1"),
        ({"steps": -1}, "steps is -1"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"lr": 0.0}, "lr is 0.0"),
        ({"lr": float("nan")}, "lr is nan"),
        ({"against": "nccl"}, "cannot compare with 'nccl'; there is ddp-gloo"),
        ({"partition": "half"}, "no partition 'half'"),
        ({"network": "distance=1km"}, "cannot read 'distance=1km' of a network"),
        ({"workers": 2, "strategy": "ltp(server=3)"}, "are 3 ranks, and none of them is rank 3"),
        ({"strategy": "ltp(server=0)", "against": "ddp-gloo"}, "no worker, and ddp-gloo cannot"),
        ({"strategy": "ltp(server=0)", "backend": "gloo"}, "no worker, and gloo cannot"),
    ],
)
def test_wrong_settings_are_refused_in_words(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        fill(wrong)


def test_a_server_is_a_rank_beside_the_workers() -> None:
    assert (fill({"workers": 3}).ranks, fill({"workers": 3}).server) == (3, None)
    served = fill({"workers": 3, "strategy": "ltp(server=3)"})
    assert (served.ranks, served.server) == (4, 3)


def test_unknown_strategy_is_refused() -> None:
    with pytest.raises(StrategyError, match="yelling"):
        fill({"strategy": "yelling"})


def test_settings_survive_json() -> None:
    settings = fill({"against": "ddp-gloo"})
    assert Settings.from_json(settings.to_json()) == settings


def test_settings_of_another_version_are_refused() -> None:
    with pytest.raises(UsageError, match="another version"):
        Settings.from_json({"task": "digits"})


def test_a_network_is_kept_with_everything_said() -> None:
    assert fill({"network": "rate=1000kbit"}).network == "rate=1mbit,congestion=cubic"
    assert fill({}).links is None


def test_sides_have_labels_and_titles_ours_first() -> None:
    sides = fill({"against": "ddp-gloo", "backend": "gloo"}).sides
    assert list(sides.items()) == [(OURS, "tweed every_step over gloo"), ("ddp-gloo", "PyTorch DDP on Gloo")]
    assert fill({}).sides == {OURS: "tweed every_step"}


def test_learning_rate_falls_to_zero() -> None:
    settings = fill({"steps": 10, "lr": 1.0})
    rates = [settings.lr_at(step) for step in range(11)]
    assert rates[0] == 1.0
    assert rates == sorted(rates, reverse=True)
    assert rates[10] == pytest.approx(0.0)


def test_differences_name_both_values() -> None:
    assert differences(fill({"steps": 5}), {"steps": 6, "workers": 4}) == ["steps was 5, not 6"]


@pytest.mark.parametrize("name", TASKS)
def test_every_task_has_its_data_set(name: str) -> None:
    assert row(name).data in SETS


@given(st.integers(1, 50), st.integers(1, 20), st.integers(0, 2**32 - 1), st.integers(0, 7))
def test_each_pass_sees_every_sample_once(count: int, size: int, seed: int, rank: int) -> None:
    batches = Batches(np.arange(100, 100 + count), size, seed, rank)
    seen = np.concatenate([batches.at(step) for step in range(count)])
    passes = seen.reshape(size, count)
    assert (np.sort(passes, axis=1) == np.arange(100, 100 + count)).all()


def test_a_batch_depends_on_nothing_but_its_step() -> None:
    walked = Batches(np.arange(10), 4, 1, 2)
    for step in range(9):
        walked.at(step)
    np.testing.assert_array_equal(Batches(np.arange(10), 4, 1, 2).at(9), walked.at(9))


def test_ranks_and_seeds_shuffle_differently() -> None:
    first = Batches(np.arange(100), 50, 1, 0).at(0)
    assert not np.array_equal(first, Batches(np.arange(100), 50, 1, 1).at(0))
    assert not np.array_equal(first, Batches(np.arange(100), 50, 2, 0).at(0))


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"resume": True}, "--resume needs --name"),
        ({"given": {"steps": 1}, "epochs": 1.0}, "--steps and --epochs"),
        ({"epochs": 0.0}, "epochs is 0.0"),
        ({"name": "a/b"}, "'a/b' cannot be the name"),
        ({"name": ".."}, "cannot be the name"),
        ({"name": ""}, "cannot be the name"),
        ({"or_unshaped": True}, "give --network too"),
    ],
)
def test_wrong_requests_are_refused_in_words(request_: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Request(**({"given": {}} | request_))


def test_workers_are_the_launchers() -> None:
    assert Request({}).with_workers(3).given == {"workers": 3}
    with pytest.raises(UsageError, match="--workers 4, but the launcher has started 3"):
        Request({"workers": 4}).with_workers(3)


def test_torchruns_workers_get_no_network() -> None:
    with pytest.raises(UsageError, match="without torchrun"):
        Request({"network": "rate=1mbit"}).with_workers(3)


def test_steps_of_epochs() -> None:
    assert steps_of(1.5, 6400, fill({"workers": 2, "batch_size": 32})) == 150
    assert steps_of(0.001, 10, fill({})) == 1


def test_free_name_counts_on(tmp_path: Path) -> None:
    settings = fill({"task": "digits", "strategy": "local_steps:8"})
    assert free_name(settings, tmp_path) == "digits-local_steps_8"
    (tmp_path / "digits-local_steps_8").mkdir()
    assert free_name(settings, tmp_path) == "digits-local_steps_8-2"


class TestBegin:
    """Opening a run's folder."""

    @pytest.fixture(autouse=True)
    def own_cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TWEED_CACHE", str(tmp_path / "cache"))

    def test_a_new_run_notes_settings_machine_and_command(self, tmp_path: Path) -> None:
        request = Request({"task": "digits"}, name="a", argv=["tweed", "train", "--name", "a b"])
        settings, folder = begin(request, tmp_path, lambda line: None)
        facts = folder.facts()
        assert Settings.from_json(facts["settings"]) == settings
        assert facts["command"] == "tweed train --name 'a b'"
        assert facts["machine"]["cores"] >= 1
        assert facts["one_host"]

    def test_epochs_become_steps(self, tmp_path: Path) -> None:
        settings, _ = begin(Request({"task": "digits"}, epochs=2.0), tmp_path, lambda line: None)
        assert settings.steps == round(2 * 1438 / 64)

    @pytest.mark.parametrize(
        ("wrong", "words"),
        [
            (Request({"task": "digits"}, name="a"), "there already: --resume goes on"),
            (Request({"steps": 8}, name="a", resume=True), "steps was 9, not 8"),
            (Request({}, name="b", resume=True), "no run to resume"),
            (Request({"task": "digits", "network": "loss=2"}, or_unshaped=True), "below 1"),
        ],
    )
    def test_what_cannot_begin_is_refused_in_words(self, wrong: Request, words: str, tmp_path: Path) -> None:
        begin(Request({"task": "digits", "steps": 9}, name="a"), tmp_path, lambda line: None)
        with pytest.raises(UsageError, match=words):
            begin(wrong, tmp_path, lambda line: None)

    def test_resume_takes_the_stored_settings(self, tmp_path: Path) -> None:
        first, _ = begin(Request({"task": "digits", "steps": 9}, name="a"), tmp_path, lambda line: None)
        again, _ = begin(Request({"steps": 9}, name="a", resume=True), tmp_path, lambda line: None)
        assert again == first

    def test_resume_refuses_a_run_of_another_version(self, tmp_path: Path) -> None:
        _, folder = begin(Request({"task": "digits"}, name="a"), tmp_path, lambda line: None)
        facts = folder.facts()
        del facts["format"]
        (folder.path / "run.json").write_text(json.dumps(facts))
        with pytest.raises(UsageError, match="has format 1, this tweed reads 2: time and bytes were counted"):
            begin(Request({}, name="a", resume=True), tmp_path, lambda line: None)

    def test_a_network_that_cannot_be_built_is_an_error_before_anything_is_written(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(namespaces, "_PATH", os.devnull)
        request = Request({"task": "digits", "network": "rate=1mbit"}, name="a")
        with pytest.raises(NoTestbed, match="apt install"):
            begin(request, tmp_path, lambda line: None)
        assert not (tmp_path / "a").exists()

    def test_or_unshaped_goes_on_aloud_and_notes_why(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(namespaces, "_PATH", os.devnull)
        lines: list[str] = []
        asked = {"task": "digits", "network": "rate=1mbit"}
        settings, folder = begin(Request(asked, name="a", or_unshaped=True), tmp_path, lines.append)
        assert settings.network is None
        assert "apt install" in folder.facts()["unshaped"]
        assert "The network is not shaped: a network of namespaces needs" in "\n".join(lines)

    def test_fallback_is_taken_aloud_when_data_is_not_to_be_had(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(SETS["fashion-mnist"], "SOURCES", ())
        monkeypatch.setattr(SETS["fashion-mnist"], "FILES", {"gone": {checksum(b"x")}})
        lines: list[str] = []
        settings, _ = begin(Request({}, fallback="digits"), tmp_path, lines.append)
        assert settings.task == "digits"
        assert "fashion-mnist is not to be had here: training digits instead." in "\n".join(lines)
        with pytest.raises(DataError, match="fashion-mnist"):
            begin(Request({}), tmp_path, lines.append)
