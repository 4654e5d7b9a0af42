"""What Prometheus scrapes and TensorBoard reads, each through its own client."""

from __future__ import annotations

import socket
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.metrics.cases import BEFORE, NOW, WINDOW, matrix
from tweed.errors import UsageError
from tweed.metrics.prometheus import Exporter, families
from tweed.metrics.snapshot import Matrix
from tweed.metrics.tensorboard import Board, scalars


class Fixed:
    """A collector of one matrix."""

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix

    def collect(self) -> object:
        return families(self._matrix)


def registry(matrix: Matrix) -> CollectorRegistry:
    made = CollectorRegistry()
    made.register(Fixed(matrix))  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("tweed_link_bytes_total", {"rank": "0", "peer": "1", "link": "tcp", "direction": "out"}, 3e6),
        ("tweed_link_bytes_total", {"rank": "1", "peer": "0", "link": "tcp", "direction": "in"}, 6e6),
        ("tweed_link_messages_total", {"rank": "0", "peer": "1", "link": "tcp", "direction": "in"}, 60),
        ("tweed_link_retransmissions_total", {"rank": "0", "peer": "1"}, 3),
        ("tweed_link_round_trip_seconds", {"rank": "0", "peer": "1"}, 0.00025),
        ("tweed_link_last_total", {"rank": "0", "peer": "1"}, 12),
        ("tweed_link_lateness_seconds_total", {"rank": "0", "peer": "1"}, 0.024),
        ("tweed_rank_last_total", {"rank": "1"}, 12),
        ("tweed_rank_lateness_seconds_total", {"rank": "1"}, 0.024),
        ("tweed_rank_silent_seconds", {"rank": "0"}, 0),
        ("tweed_rank_info", {"rank": "1", "host": "host1", "pid": "101"}, 1),
        ("tweed_run_info", {"run": "digits-every_step", "ranks": "2"}, 1),
        ("tweed_training_steps_total", {"rank": "0"}, 15),
        ("tweed_training_waiting_seconds_total", {"rank": "1"}, 0.75),
        ("tweed_training_encoding_seconds_total", {"rank": "1"}, 0.375),
        ("tweed_rank_under_way_seconds_total", {"rank": "1"}, 1.5),
    ],
)
def test_each_figure_has_its_metric(name: str, labels: dict[str, str], value: float) -> None:
    assert registry(NOW).get_sample_value(name, labels) == value


def test_without_wires_or_attach_their_metrics_are_empty() -> None:
    bare = matrix(12.0, 3, kind="shm")
    names = {
        sample.name for family in families(Matrix("x", 1, 2, 1.0, bare.rows)) for sample in family.samples
    }
    assert "tweed_link_round_trip_seconds" not in names
    assert not [family for family in families(Matrix("x", 1, 2, 1.0)) if "training" in family.name]


def test_the_epoch_is_told_where_members_come_and_go() -> None:
    assert registry(replace(NOW, epoch=7)).get_sample_value("tweed_epoch") == 7
    assert registry(NOW).get_sample_value("tweed_epoch") is None


def test_a_scrape_over_loopback() -> None:
    exporter = Exporter(("127.0.0.1", 0))
    try:
        assert scrape(exporter.port) == {}
        exporter.show(NOW)
        found = scrape(exporter.port)
    finally:
        exporter.close()
    assert found["tweed_link_retransmissions_total"] == 6.0
    with pytest.raises(OSError):
        scrape(exporter.port)


def scrape(port: int) -> dict[str, float]:
    """Sum of the samples of each metric that is served."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
        text = reply.read().decode()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def test_a_taken_port_is_said_in_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"cannot serve Prometheus on 127.0.0.1:{port}.*another port"):
            Exporter(("127.0.0.1", port))


def test_tensorboard_reads_back_what_was_written(tmp_path: Path) -> None:
    board = Board(str(tmp_path))
    board.show(BEFORE)
    board.show(NOW)
    board.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    wanted = dict(scalars(WINDOW))
    assert set(events.Tags()["scalars"]) == set(wanted)
    for tag, value in wanted.items():
        (event,) = events.Scalars(tag)
        assert (event.step, event.value) == (15, pytest.approx(value))


def test_without_attach_the_step_is_in_seconds(tmp_path: Path) -> None:
    board = Board(str(tmp_path))
    board.show(Matrix("x", 1, 2, 1.0))
    board.show(Matrix("x", 1, 2, 7.2, tuple(NOW.rows[1:])))
    board.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [event.step for event in events.Scalars("tweed_late_ms/rank_1")] == [7]


def test_the_scalars_are_rates_of_the_time_between() -> None:
    found = dict(scalars(WINDOW))
    assert found["tweed_MB_per_s_out/rank_0"] == 1.0
    assert found["tweed_retransmissions_per_s/rank_1"] == 1.0
    assert found["tweed_round_trip_ms/rank_0_to_1"] == 0.25
    assert found["tweed_steps_per_s/rank_0"] == 5.0
    assert found["tweed_waiting_share/rank_0"] == 0.25
    assert found["tweed_last_share/rank_1"] == 1.0
    assert found["tweed_late_ms/rank_1"] == pytest.approx(2.0)
