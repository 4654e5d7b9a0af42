"""Plans of pieces: every piece once, as the order has it, the same at all ranks. Pure."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.errors import UsageError
from tweed.order import ByLayer, Credit, Piece, Prophet, Setting, bursts
from tweed.order.piece_list import EVERY, Measured, PieceList, Planner, count

SIZES = [48, 16, 80]
ORDERS = (
    ByLayer(piece_bytes=16),
    ByLayer(3, 16),
    Credit(64, 32),
    Credit(64, 32, tuned=True),
    Prophet(piece_bytes=32),
)
sizes = st.lists(st.integers(1, 900), min_size=1, max_size=9)


def made(order: Any, of: list[int], ready_s: list[float], seconds: float = 1.0) -> tuple[Setting, list[int]]:
    planner = Planner(order, of)
    planner.take(Measured(ready_s, 100.0, seconds))
    return planner.next()


@given(sizes, st.sampled_from(ORDERS), st.lists(st.floats(0, 5), min_size=9, max_size=9))
def test_every_piece_goes_once(of: list[int], order: Any, gaps: list[float]) -> None:
    ready_s = [sum(gaps[layer + 1 : len(of)]) for layer in range(len(of))]
    setting, places = made(order, of, ready_s)
    plan = PieceList.of(setting, places, of)
    assert Counter(plan.pieces) == Counter(PieceList.first(setting, of).pieces)
    assert len(plan.pieces) == count(of, setting.piece_bytes)
    assert plan.order.keys == plan.pieces and plan.order.window_bytes == setting.window_bytes


def test_at_first_gradients_go_as_they_come() -> None:
    plan = PieceList.first(Setting(32, 64), SIZES)
    assert [piece.layer for piece in plan.pieces] == [2, 2, 2, 1, 0, 0]
    assert [piece.place for piece in plan.pieces] == [0, 1, 2, 0, 0, 1]


def test_what_is_read_first_goes_first_of_what_is_there() -> None:
    setting, places = made(ByLayer(piece_bytes=16), SIZES, [0.3, 0.3, 0.0])
    layers = [piece.layer for piece in PieceList.of(setting, places, SIZES).pieces]
    assert layers == [2, 2, 0, 0, 0, 1, 2, 2, 2]  # the second begins before 0.3 s


def test_no_piece_runs_into_the_next_burst() -> None:
    """A piece takes 0.16 s: of layer 3 one ends before the burst at 0.3 s, and a second one would not."""
    sizes, ready_s = [32, 16, 16, 48], [0.3, 0.3, 0.3, 0.0]
    setting, places = made(Prophet(piece_bytes=16), sizes, ready_s)
    layers = [piece.layer for piece in PieceList.of(setting, places, sizes).pieces]
    assert bursts(ready_s)[0].gap_s == 0.3 and layers == [3, 0, 0, 1, 2, 3, 3]


def test_other_sizes_are_tried_after_a_few_steps() -> None:
    planner = Planner(Credit(1_600_000, 400_000, tuned=True), [10**7, 10**7])
    tried = set()
    for _ in range(30):
        tried.add(setting := planner.next()[0])
        for _ in range(EVERY):
            planner.take(Measured([0.1, 0.0], 1e6, setting.piece_bytes / 1e6))
    assert len(tried) > 4 and setting.piece_bytes < 100_000


@pytest.mark.parametrize(
    "make", [lambda: ByLayer(piece_bytes=0), lambda: Credit(piece_bytes=20), lambda: Prophet(piece_bytes=-16)]
)
def test_pieces_that_would_cut_values_are_refused(make: Any) -> None:
    with pytest.raises(UsageError, match="multiple of 16"):
        make()


def test_a_profile_is_no_part_of_a_strategy() -> None:
    assert Prophet().start().over and Piece(0, 0).layer == 0
