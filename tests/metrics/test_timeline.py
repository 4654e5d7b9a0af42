"""What a step encodes and waits for: noted while somebody records, and who was last heard of."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tweed.metrics.timeline import Span, follow, last_heard, note, record, records, stop
from tweed.train.timeline import StepRecorder


class FakeWork:
    """A collective that a test ends, and its own future."""

    def get_future(self) -> FakeWork:
        return self

    def add_done_callback(self, ended: Callable[[object], None]) -> None:
        self.end = lambda: ended(self)


def links(*seen: tuple[int, float]) -> list[dict[str, Any]]:
    """By rank, how often it was last, and how late in all."""
    return [
        {"rank": rank, "link": "tcp", "times_last": times, "lateness_s": late}
        for rank, (times, late) in enumerate(seen)
    ]


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (links((3, 0.0), (5, 1.0), (2, 0.5)), None),
        (links((3, 0.0), (6, 1.1), (2, 0.5)), (1, "tcp")),
        (links((3, 0.0), (6, 9.0), (4, 0.6)), (2, "tcp")),
        (links((3, 0.0), (6, 1.1), (3, 0.9)), (2, "tcp")),
        (links((4, 0.0), (5, 1.0), (2, 0.5)), (0, "tcp")),
        ([], None),
    ],
    ids=["nobody", "one", "more often", "as often, but later", "itself", "gone"],
)
def test_last_heard_is_who_was_last_most_often(after: list[dict[str, Any]], expected: object) -> None:
    assert last_heard(links((3, 0.0), (5, 1.0), (2, 0.5)), after) == expected


def test_spans_are_kept_while_somebody_records() -> None:
    note("wait", 0.0, 1.0)
    recording = record()
    assert records()
    note("encode", 1.0, 2.0)
    stop()
    note("wait", 0.0, 1.0)
    assert recording.take(3.0) == [Span("encode", 1.0, 2.0)] and not records()


def test_collectives_are_under_way_until_they_end() -> None:
    now = iter([1.0, 2.0, 4.0])
    recording, (first, second) = record(), (FakeWork(), FakeWork())
    for work in (first, second):
        follow(work, lambda: next(now))
    first.end()
    stop()
    assert recording.take(3.0) == [Span("under way", 1.0, 4.0), Span("under way", 2.0, 3.0)]
    assert recording.take(5.0) == [Span("under way", 2.0, 5.0)]
    follow(first, lambda: next(now))  # nobody records


def test_what_began_in_an_earlier_step_is_under_way_from_the_start() -> None:
    recorder, work = StepRecorder(first=2), FakeWork()
    with recorder.step(1):
        follow(work, time.monotonic)
    with recorder.step(2):
        note("wait", time.monotonic(), time.monotonic())
    assert recorder.found is not None
    (way,) = [span for span in recorder.found.spans if span.what == "under way"]
    assert (way.began_s, way.ended_s) == (0.0, recorder.found.seconds)


def test_a_step_that_raises_is_not_recorded_and_the_next_one_is() -> None:
    recorder = StepRecorder(first=1)
    with pytest.raises(ValueError, match="step"), recorder.step(1):
        raise ValueError("step")
    assert not records()
    with recorder.step(2):
        note("wait", time.monotonic(), time.monotonic())
    assert recorder.found is not None and recorder.found.step == 2 and not records()


def test_the_first_step_that_waits_is_kept_and_begins_at_zero() -> None:
    recorder = StepRecorder(first=2)
    later = time.monotonic() + 100
    lengths = [("wait", 1.0), ("encode", 1.0), ("wait", 0.5), ("wait", 1.0)]
    steps = [Span(what, later, later + length) for what, length in lengths]
    for number, span in enumerate(steps, start=1):
        with recorder.step(number):
            note(span.what, span.began_s, span.ended_s, span.last)
    assert recorder.found is not None and recorder.found.step == 3
    (kept,) = recorder.found.spans
    assert kept.what == "wait" and kept.ended_s - kept.began_s == pytest.approx(0.5)
    plain = {"what": "wait", "began_s": kept.began_s, "ended_s": kept.ended_s, "last": None}
    assert recorder.plain() == {"step": 3, "seconds": recorder.found.seconds, "spans": [plain]}


def test_a_side_that_tells_no_waits_has_no_step() -> None:
    recorder = StepRecorder(first=1)
    with recorder.step(1):
        pass
    assert recorder.plain() is None and not records()
