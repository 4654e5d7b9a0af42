"""How much is on its way to a joiner: a link with a rate, a queue and a round trip, without a network."""

from __future__ import annotations

from collections import deque

import pytest

from tweed.elastic.messages import CHUNK_BYTES
from tweed.elastic.window import LEAST, MOST, Window


def given(rate_mbit: float, round_trip_s: float, seconds: float, holds_s: float = 0.0) -> tuple[float, float]:
    """A donor that has always something to give. Returns the share of the link's rate that crosses in the
    last half, and the longest that a chunk stands in the queue then.

    Args:
      holds_s: the joiner acknowledges so much later in the first half, as when its loop is not there yet.
    """
    window, rate, step = Window(), rate_mbit * 125_000, 1e-4
    sent = acknowledged = late = 0
    free_s = waited_s = now = 0.0
    answers: deque[tuple[float, int]] = deque()
    while now < seconds:
        while answers and answers[0][0] <= now:
            acknowledged = answers.popleft()[1]
            late += CHUNK_BYTES if now > seconds / 2 else 0
        window.acknowledge(acknowledged, now)
        while sent - acknowledged < window.bytes:
            sent += CHUNK_BYTES
            window.sent(sent, acknowledged, now)
            waited_s = max(waited_s, free_s - now) if now > seconds / 2 else 0.0
            free_s = max(free_s, now) + CHUNK_BYTES / rate
            answers.append((free_s + round_trip_s + holds_s * (now < seconds / 2), sent))
        now += step
    return late / (seconds / 2 * rate), waited_s


@pytest.mark.parametrize(("rate_mbit", "round_trip_s"), [(200, 0.1), (100, 0.3), (400, 0.1), (1000, 0.01)])
def test_a_link_with_a_long_round_trip_is_filled(rate_mbit: float, round_trip_s: float) -> None:
    share, waited_s = given(rate_mbit, round_trip_s, 40 * max(0.1, round_trip_s))
    assert share > 0.9 and waited_s < 1.5 * round_trip_s + CHUNK_BYTES / (125_000 * rate_mbit)


@pytest.mark.parametrize(("rate_mbit", "round_trip_s"), [(20, 0.0), (20, 0.01), (5, 0.02)])
def test_the_queue_of_a_slow_link_is_no_longer_than_with_a_few_chunks(
    rate_mbit: float, round_trip_s: float
) -> None:
    share, waited_s = given(rate_mbit, round_trip_s, 8.0)
    assert share > 0.9 and waited_s <= LEAST / (125_000 * rate_mbit)


def test_it_is_small_while_answers_are_held_back_and_grows_again() -> None:
    share, _ = given(200, 0.1, 8.0, holds_s=0.5)
    assert share > 0.8
    window = Window()
    window.sent(LEAST, 0, 0.0)
    window.acknowledge(LEAST, 0.1)
    window.sent(2 * LEAST, LEAST, 0.1)
    window.acknowledge(2 * LEAST, 9.0)
    assert window.bytes == LEAST and window.round_trip_s == 0.1


def test_it_has_an_end() -> None:
    window, sent = Window(), 0
    for number in range(40):
        window.sent(sent + window.bytes, sent, float(number))
        sent += window.bytes
        window.acknowledge(sent, number + 1.0)
    assert window.bytes == MOST
