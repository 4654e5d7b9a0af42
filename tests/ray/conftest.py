"""One cluster of three raylets, and one driver, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ray.driver import Driver
from tweed.ray.installed import version
from tweed.testbed import Network, opened
from tweed.testbed.raylets import raylets


@pytest.fixture(scope="session")
def driver(namespaces: None) -> Iterator[Driver]:
    """What runs functions beside the head of the cluster."""
    if version() is None:
        pytest.skip("Ray is not installed: pip install 'tweed[ray]'")
    with opened(Network(), 3) as bed, raylets(bed, cpus=1) as cluster, Driver(cluster) as found:
        yield found
