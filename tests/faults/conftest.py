"""The ways over which faults are tried: both backends, each kind of link, with and without metrics."""

from __future__ import annotations

from typing import NamedTuple

import pytest


class Way(NamedTuple):
    """What the ranks of a test are told, as values of TWEED_ variables."""

    binding: str
    transport: str
    metrics: str
    wire_only: str = ""

    @property
    def environment(self) -> dict[str, str]:
        """The same as variables."""
        return {f"TWEED_{name.upper()}": value for name, value in self._asdict().items()}


# Metrics wake ranks up and so hide a wake-up that is missing: half of the ways do without.
# Within a host values travel by LTP only if no memory is shared.
WAYS = {
    "native-shm-unmetered": Way("native", "auto", "0"),
    "native-tcp": Way("native", "tcp", "1"),
    "native-ltp-unmetered": Way("native", "ltp", "0", "1"),
    "python-shm": Way("python", "auto", "1"),
    "python-tcp-unmetered": Way("python", "tcp", "0"),
    "python-ltp": Way("python", "ltp", "1", "1"),
}


def take(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets what ranks that are started from now on are told."""
    for name, value in way.environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Sets backend, links and metrics of the ranks that the test starts."""
    take(WAYS[request.param], monkeypatch)
    return str(request.param)


def ring_of(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank hears from one other only, so most of them do not wait for the culprit themselves.

    Not over LTP, by which a rank passes nobody's sums on.
    """
    if "ltp" not in way:
        monkeypatch.setenv("TWEED_SCHEDULE", "all_reduce=ring")


@pytest.fixture
def around_a_ring(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `ring_of`."""
    ring_of(way, monkeypatch)
