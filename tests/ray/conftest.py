"""One cluster of three raylets, and one driver, for all tests of this folder that need one.

They are marked `ray_cluster`: `make test` runs them in one process, and not beside others, as each process
that had some would start a cluster. What takes longest is left to `make ray-test`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.ray.driver import Driver
from tests.testbed.test_namespaces import living_in
from tweed.forkserver.server import environment
from tweed.ray.installed import version
from tweed.testbed import Network, opened
from tweed.testbed.ray_cluster import ray_cluster

#: Ray Train looks after its workers more often, and without an actor of its own for hosts that are withdrawn.
QUICK = {"RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.1", "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what needs the cluster."""
    for item in items:
        if "driver" in getattr(item, "fixturenames", ()):
            item.add_marker("ray_cluster")


@pytest.fixture
def slow() -> None:
    """For what CI does without."""
    if "TWEED_TEST_RAY" not in os.environ:
        pytest.skip("takes a minute of two cores: make ray-test")


@pytest.fixture(scope="session")
def driver(namespaces: None) -> Iterator[Driver]:
    """What runs functions beside the head of the cluster."""
    if version() is None:
        if "CI" in os.environ:
            raise AssertionError("Ray is in requirements.lock, and is not installed")
        pytest.skip("Ray is not installed: pip install 'WHEEL[ray]'")
    with opened(Network(), 3) as bed:
        spaces = {host.namespace for host in bed.hosts}
        with environment(QUICK), ray_cluster(bed, cpus=1) as cluster, Driver(cluster) as found:
            yield found
        assert len(living_in(spaces)) == bed.size  # those that hold the namespaces, and nothing of Ray
