"""One rule for time, waiting and bytes: the first broadcast counts in all of them, evaluations in none."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tweed.train import meter
from tweed.train.meter import Counts, Meter
from tweed.train.sides import Side
from tweed.train.together import Alone


@dataclass
class World:
    """A clock, a link and a side's counters, which go on together."""

    now: float = 100.0
    sent: int = 5000
    bytes: int = 0
    waited: float = 0.0

    def communicate(self, seconds: float, numbytes: int) -> None:
        self.now += seconds
        self.waited += seconds / 2
        self.bytes += numbytes
        self.sent += 2 * numbytes

    def exchanged(self) -> int:
        return self.bytes

    def waiting(self) -> float:
        return self.waited


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(meter, "time", SimpleNamespace(monotonic=lambda: made.now))
    monkeypatch.setattr(meter, "sent_bytes", lambda: made.sent)
    return made


def begun(world: World) -> Meter:
    """A meter after a first broadcast of 4 seconds and 100 bytes."""
    made = Meter(Alone())
    with made.training():
        world.communicate(4.0, 100)
    made.side = cast(Side, world)
    return made


def test_the_first_broadcast_is_in_time_waiting_and_bytes(world: World) -> None:
    made = begun(world)
    assert made.seconds == 4.0
    assert made.spent == Counts(exchanged=100, waiting_s=2.0, link_bytes=200)


def test_an_evaluation_is_in_none_of_them(world: World) -> None:
    made = begun(world)
    with made.aside():
        world.communicate(8.0, 1000)
        inside = made.spent, made.exchanged_aside
    assert inside == (Counts(100, 2.0, 200), 1000)
    with made.training():
        world.communicate(1.0, 10)
    assert (made.seconds, made.spent, made.exchanged_aside) == (5.0, Counts(110, 2.5, 220), 1000)


def test_a_resumed_run_counts_on_from_its_checkpoint(world: World) -> None:
    before = begun(world)
    with before.aside():
        world.communicate(8.0, 1000)
        state: dict[str, Any] = before.state_dict()
    totals = (world.bytes, world.waited)
    world.sent, world.bytes, world.waited = 0, 0, 0.0  # another process, behind another link
    after = begun(world)
    world.bytes, world.waited = totals  # the side has loaded its own state
    after.load_state_dict(state)
    assert (after.seconds, after.spent, after.exchanged_aside) == (4.0, Counts(100, 2.0, 200), 1000)
    with after.training():
        world.communicate(1.0, 10)
    assert (after.seconds, after.spent) == (5.0, Counts(110, 2.5, 220))
