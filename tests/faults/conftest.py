"""The ways over which every fault is tried: both backends, and both kinds of link."""

from __future__ import annotations

import pytest

WAYS = {"native-shm": ("native", "auto"), "native-tcp": ("native", "tcp"), "python-shm": ("python", "auto")}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Sets backend and links of the ranks that the test starts."""
    binding, transport = WAYS[request.param]
    monkeypatch.setenv("TWEED_BINDING", binding)
    monkeypatch.setenv("TWEED_TRANSPORT", transport)
    return str(request.param)


@pytest.fixture
def around_a_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank hears from one other only, so most of them do not wait for the culprit themselves."""
    monkeypatch.setenv("TWEED_SCHEDULE", "all_reduce=ring")
