"""Messages that a group sends for itself."""

from __future__ import annotations

from typing import Any

import pytest

from tweed.errors import DeadlineExceeded, TweedError
from tweed.torch import messages


class Ends:
    """A flight that ends just after the first wait for it has given up."""

    failure: TweedError | None = None

    def __init__(self, *_: Any) -> None:
        self.waits = 0

    def wait(self, timeout_s: float | None = None) -> None:
        self.waits += 1
        if self.waits == 1:
            raise DeadlineExceeded(f"it has not ended within {timeout_s} s, and goes on")
        if self.failure is not None:
            raise self.failure

    def done(self) -> bool:
        return True


class EndsLate(Ends):
    """The end is that its own deadline has passed."""

    failure = DeadlineExceeded("rank 1 has sent nothing for 30 s")


class Group:
    def address(self) -> int:
        return 0


def test_what_ends_as_a_wait_gives_up_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "Flight", Ends)
    messages.barrier(Group())  # type: ignore[arg-type]


def test_a_deadline_of_its_own_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "Flight", EndsLate)
    with pytest.raises(DeadlineExceeded, match="rank 1"):
        messages.barrier(Group())  # type: ignore[arg-type]
