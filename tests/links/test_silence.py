"""How long a member may be silent that was granted something: what has come before says it."""

from __future__ import annotations

import math

from tweed.links.silence import Silence


def watched(took_s: float) -> Silence:
    """A payload took so long; then member 1 was granted something, at 100 s."""
    silence = Silence()
    silence.granted(0, 0.0)
    silence.arrived(0, took_s)
    silence.granted(1, 100.0)
    return silence


def looks(silence: Silence, come: dict[int, int], times: int = 2) -> list[list[int]]:
    found = []
    for _ in range(times):
        found.append(silence.look(silence.deadline(), lambda member: come[member]))
    return found


def test_nobody_is_judged_before_a_payload_has_come() -> None:
    silence = Silence()
    silence.granted(1, 0.0)
    assert silence.deadline() == math.inf and silence.look(1e9, lambda member: 0) == []


def test_of_whom_nothing_comes_between_two_looks_is_silent() -> None:
    silence = watched(took_s=20.0)
    assert silence.deadline() == 140.0
    assert looks(silence, {1: 7}) == [[], [1]]


def test_a_fast_network_says_little_of_a_moment_of_silence() -> None:
    assert watched(took_s=0.001).deadline() == 105.0


def test_who_sends_slowly_is_not_silent() -> None:
    silence, come = watched(took_s=1.0), {1: 0}
    for _ in range(20):
        come[1] += 1
        assert looks(silence, come, 1) == [[]]


def test_a_look_that_is_late_says_nothing() -> None:
    silence, come = watched(took_s=1.0), {1: 0}
    looks(silence, come, 1)
    assert silence.look(1000.0, lambda member: 0) == []
    assert looks(silence, come, 1) == [[1]]


def test_who_was_hung_up_on_has_until_the_end_of_its_lease_the_next_time() -> None:
    silence = watched(took_s=1.0)
    looks(silence, {1: 0})
    silence.over(1)
    silence.granted(1, 200.0)
    assert silence.deadline() == math.inf
    silence.arrived(1, 210.0)
    silence.granted(1, 300.0)
    assert silence.deadline() == 320.0


def test_whose_task_is_over_is_not_looked_at() -> None:
    silence = watched(took_s=1.0)
    silence.over(1)
    assert silence.deadline() == math.inf
