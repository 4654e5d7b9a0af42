"""Why there is a next epoch."""

from __future__ import annotations

import pytest

from tweed.elastic.change import Change, change
from tweed.elastic.epoch import Epoch

BEFORE = Epoch(4, ("a", "b", "c"), lives=(0, 0, 2))


@pytest.mark.parametrize(
    ("before", "now", "found", "words"),
    [
        (Epoch(0), BEFORE, Change(), ""),
        (BEFORE, Epoch(5, ("a", "c"), broken=True, lives=(0, 2)), Change(lost=("b",)), "lost: b"),
        (BEFORE, Epoch(5, ("a", "c"), lives=(0, 2)), Change(left=("b",)), "left: b"),
        (BEFORE, Epoch(7, ("c",), broken=True, lives=(2,)), Change(gone=("a", "b")), "gone: a, b"),
        (BEFORE, Epoch(5, ("a", "b", "c", "d"), lives=(0, 0, 2, 0)), Change(joined=("d",)), "joined: d"),
        (
            BEFORE,
            Epoch(5, ("a", "b", "c"), broken=True, lives=(0, 0, 3)),
            Change(returned=("c",)),
            "returned: c",
        ),
        (
            BEFORE,
            Epoch(5, ("c", "d"), broken=True, lives=(2, 0)),
            Change(lost=("a", "b"), joined=("d",)),
            "lost: a, b; joined: d",
        ),
        (
            Epoch(4, ("a",), witnesses=("v", "w", "x"), lives=(0,)),
            Epoch(5, ("a",), witnesses=("v", "y", "x"), lives=(0,)),
            Change(witnesses=("y",)),
            "new witness: y",
        ),
        (
            BEFORE,
            Epoch(5, ("a", "b", "c"), broken=True, missing=((0, 2),), lives=(0, 0, 2)),
            Change(cut=(("a", "c"),)),
            "link cut: a and c",
        ),
        (
            Epoch(4, ("a", "b", "c"), missing=((0, 2), (1, 2)), lives=(0, 0, 0)),
            Epoch(5, ("a", "c", "d"), broken=True, missing=((0, 1),), lives=(0, 0, 0)),
            Change(lost=("b",), joined=("d",)),
            "lost: b; joined: d",
        ),
        (
            Epoch(4, ("a", "b", "c"), missing=((0, 2), (1, 2)), lives=(0, 0, 0)),
            Epoch(5, ("b", "a", "c"), missing=((1, 2),), lives=(0, 0, 0)),
            Change(healed=(("b", "c"),)),
            "link works again: b and c",
        ),
        (BEFORE, Epoch(5, BEFORE.members, broken=True, lives=BEFORE.lives), Change(), ""),
    ],
)
def test_two_epochs_say_what_has_changed(before: Epoch, now: Epoch, found: Change, words: str) -> None:
    assert change(before, now) == found and found.words == words


def test_members_are_named_by_the_begin_of_their_keys() -> None:
    assert Change(lost=("0123456789abcdef",)).words == "lost: 01234567"
