"""SGD by objects: synchronous or not, the log says what came of it."""

from __future__ import annotations

import pytest

from tweed.systems.hoplite.training import Job, replayed, run, train


@pytest.mark.parametrize("count", [3, 2])
def test_a_replay_of_the_log_ends_with_the_same_model(count: int) -> None:
    job = Job(3, count, 12, 0.1, momentum=0.5, task="digits")
    accuracy, digest, log = train(job)
    assert 0.0 < accuracy <= 1.0 and [len(sources) for sources in log] == [count] * 12
    assert replayed(job, log) == digest
    if count < 3:  # another log is another model
        log[5] = [one._replace(version=max(0, one.version - 1)) for one in log[5]]
        assert replayed(job, log) != digest


def test_notes_have_how_late_gradients_were() -> None:
    line = run(Job(2, 2, 3, 0.1, task="digits"), with_replay=False)
    assert (line["mean_delay"], line["most_delay"], line["replayed"]) == (0.0, 0, None)
