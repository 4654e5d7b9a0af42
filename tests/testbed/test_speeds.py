"""Computing that is slept, by a clock that only computing and sleeping move."""

from __future__ import annotations

import pytest

from tweed.errors import UsageError
from tweed.testbed import Speed, speeds


class Time:
    """Stands for the module: sleeping passes time, computing also takes the processor's."""

    def __init__(self) -> None:
        self.now = self.computed = 0.0

    def monotonic(self) -> float:
        return self.now

    def thread_time(self) -> float:
        return self.computed

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def compute(self, seconds: float, of_core: float = 1.0) -> None:
        self.computed += seconds
        self.now += seconds / of_core


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(speeds, "time", clock)
    return clock


def test_what_computing_leaves_of_its_time_is_slept(clock: Time) -> None:
    speed = Speed()
    with speed.lasting(3.0):
        clock.compute(1.0)
    assert (clock.now, speed.slept_s, speed.over_s) == (3.0, 2.0, 0.0)


def test_what_takes_longer_is_added_up(clock: Time) -> None:
    speed = Speed()
    for _ in range(2):
        with speed.lasting(1.0):
            clock.compute(1.5)
    assert (clock.now, speed.slept_s, speed.over_s) == (3.0, 0.0, 1.0)


def test_a_share_of_a_core_counts_the_time_of_its_processor(clock: Time) -> None:
    speed = Speed()
    with speed.share(0.25):
        clock.compute(1.0, of_core=0.5)  # two seconds pass, as another process has the core half of the time
    assert (clock.now, speed.slept_s) == (4.0, 2.0)


def test_an_error_ends_a_block_at_once(clock: Time) -> None:
    speed = Speed()
    with pytest.raises(ZeroDivisionError), speed.lasting(3.0):
        raise ZeroDivisionError
    assert (clock.now, speed.slept_s) == (0.0, 0.0)


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5])
def test_a_share_that_cannot_be_is_refused(share: float) -> None:
    with pytest.raises(UsageError, match="share"), Speed().share(share):
        pass
