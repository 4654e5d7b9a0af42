"""`map_tasks` on a Ray cluster: results as on local workers, deaths, errors by name, what is sent once."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.ray.driver import Driver
from tests.workloads import task_functions as functions
from tweed.errors import PeerLost, TaskFailed
from tweed.workloads.tasks import RayWorkers, map_tasks

# Processes of Ray take seconds to import what they need, and many more on a busy machine.
pytestmark = pytest.mark.timeout(600)


def two() -> RayWorkers:
    """A node of the cluster has one logical CPU."""
    return RayWorkers(2, num_cpus=0.5)


def alive() -> list[str]:
    """Actors of the cluster that are not known to be dead."""
    from ray._private.state import actors

    found: Any = actors()
    return [name for name, each in found.items() if each["State"] != "DEAD"]


def results() -> tuple[Any, Any, list[str]]:
    """With arrays in what is shared; then the first two that come while another task never ends."""
    shared = {"array": np.arange(3.0), "tensor": np.float32(1)}
    with two() as workers:
        all_of_them = map_tasks(functions.scaled, [2.0, 3.0], shared=shared, workers=workers)
        some = map_tasks(functions.pauses, [0, 1, 0], workers=workers, enough=lambda got: len(got) == 2)
        assert map_tasks(functions.square, range(4), workers=workers) == {task: task**2 for task in range(4)}
    return all_of_them, some, alive()


def test_results_are_those_of_local_workers_and_no_actor_is_left(driver: Driver) -> None:
    scaled, some, left = driver(results)
    for value, (array, other) in zip([2.0, 3.0], scaled.values(), strict=True):
        np.testing.assert_array_equal(array, value * np.arange(3.0))
        assert other == 1 + value
    assert some == {0: 0, 2: 0} and left == []


def struck(folder: str) -> list[Any]:
    """Actors are killed within tasks; then one is stopped, as by a debugger."""
    payloads = [(folder, number) for number in range(6)]
    with two() as workers:
        killed = map_tasks(functions.dies_once, payloads, workers=workers)
        stopped = map_tasks(functions.is_stopped_first, payloads, workers=workers)
    return [killed, stopped, alive()]


def test_tasks_of_actors_that_die_or_hang_go_to_others(driver: Driver, tmp_path: Path) -> None:
    expected = {number: number for number in range(6)}
    assert driver(struck, str(tmp_path)) == [expected, expected, []]


def failures() -> list[str]:
    """What is said of a task that raises, and of actors that do not find their function."""
    module = ModuleType("only_here")
    module.f = functions.square  # type: ignore[attr-defined]
    sys.modules["only_here"] = module
    cases: list[tuple[Any, Any]] = [(functions.fails, TaskFailed), ("only_here:f", PeerLost)]
    said = []
    for function, error in cases:
        with pytest.raises(error) as raised, RayWorkers(1, num_cpus=0.5) as workers:
            map_tasks(function, [2], workers=workers)
        said.append(str(raised.value))
    return [*said, *alive()]


def test_errors_are_named_with_their_tracebacks(driver: Driver) -> None:
    raised, lost = driver(failures)
    assert "task 0 of 1" in raised and "ValueError: no twos" in raised and "task_functions.py" in raised
    assert "none of 1 workers is left" in lost and "No module named 'only_here'" in lost


def sent_bytes() -> int:
    """What has left this process's network, but for loopback."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()[2:]
    return sum(int(line.split()[9]) for line in lines if not line.strip().startswith("lo:"))


def sent() -> int:
    """How many bytes leave the driver's node for 16 MB that two actors of each of three nodes share."""
    shared, before = np.arange(1 << 21, dtype=np.float64), sent_bytes()
    with RayWorkers(6, num_cpus=0.5) as workers:
        map_tasks(functions.first, range(12), shared=shared, workers=workers)
    return sent_bytes() - before


def test_what_is_shared_goes_once_to_each_node(driver: Driver) -> None:
    assert 0.9 < driver(sent) / (1 << 24) < 2.5
