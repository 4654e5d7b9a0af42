"""Prophet's experiment: the search, the audit against steps done by hand, and goals from made-up notes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.order import Piece
from tweed.order.base import Setting
from tweed.order.step import Crossing, Gradient, Iteration, Wire
from tweed.report.notes import Notes
from tweed.systems.prophet.audit import audit
from tweed.systems.prophet.contenders import ALL_REDUCE, ONLINE, SERVER, SIDES, TUNED, WHOLE, Place
from tweed.systems.prophet.measured import GRID, LEAST, online, recognised, searched, step, sweep_place
from tweed.systems.prophet.report import best, gain, study

PLACE = Place("ResNet-18", SERVER, 3.0, 0.1)


@given(st.integers(0, 12), st.integers(0, 8))
def test_a_search_goes_on_beyond_its_grid(pieces: int, more: int) -> None:
    wanted = Setting(LEAST << pieces, LEAST << pieces + more)

    def seconds(one: Setting) -> float:
        far = [abs(is_ / wanted_ - 1) for is_, wanted_ in zip(one, wanted, strict=True)]
        return sum(far)

    assert searched(seconds, windows=True) == wanted
    alone = searched(lambda one: abs(one.piece_bytes - wanted.piece_bytes), windows=False)
    assert alone == (wanted.piece_bytes, WHOLE)


def test_a_search_of_equals_takes_the_smallest_of_its_grid() -> None:
    assert searched(lambda one: 1.0, windows=True) == (GRID[0], GRID[0])


#: Layers 3 and 2 are there at 0, layers 1 and 0 at 10; every gap but that one is short.
PROFILE = (
    Gradient(100, 10.0, 1.0),
    Gradient(100, 10.0, 1.0),
    Gradient(300, 0.0, 1.0),
    Gradient(300, 0.0, 1.0),
)


def crossed(*begins: tuple[int, int, float]) -> Iteration:
    """Pieces of 100 bytes that take a second each: layer, place, and when each begins."""
    return Iteration(0.0, 0.0, tuple(Crossing(Piece(*one[:2]), one[2], one[2] + 1.0) for one in begins))


def audited(*begins: tuple[int, int, float]) -> Any:
    return audit(crossed(*begins), PROFILE, Wire(100.0), 100)


GOOD = ((2, 0, 0.0), (2, 1, 1.0), (2, 2, 2.0), (3, 0, 3.0), (3, 1, 4.0), (3, 2, 5.0))


def test_a_step_that_keeps_to_all_is_found_without_fault() -> None:
    found = audited(*GOOD, (0, 0, 10.0), (1, 0, 11.0))
    assert found == {"overlap": 0.0, "idle": round(4 / 12, 4), "held": 0.0, "by_layer": True, "once": True}


def test_what_is_still_in_flight_when_a_burst_begins_is_seen() -> None:
    assert audited(*GOOD[:5], (3, 2, 9.5), (0, 0, 10.5), (1, 0, 11.5))["overlap"] == 1.0


def test_a_link_that_is_free_without_reason_is_seen() -> None:
    found = audited(*GOOD[:5], (3, 2, 8.0), (0, 0, 10.0), (1, 0, 11.0))
    assert found["held"] == round(3 / 12, 4)


def test_pieces_that_are_missing_or_late_in_the_wrong_order_are_seen() -> None:
    found = audited(*GOOD[:5], (1, 0, 10.5), (0, 0, 11.5))
    assert not found["once"] and not found["by_layer"]


@pytest.mark.parametrize("exchange", [SERVER, ALL_REDUCE])
def test_no_side_takes_less_than_its_arithmetic_or_its_bytes(exchange: str) -> None:
    place = PLACE._replace(exchange=exchange, gbit=10.0)
    least_s = sum(layer.numbytes for layer in place.profile()) / place.wire().rate
    for side in SIDES.values():
        found = step(side, Setting(2_000_000, 8_000_000), place)
        assert found.seconds >= least_s and found.waiting_s >= 0


def test_joined_messages_cost_no_more_than_single_ones() -> None:
    place, setting = PLACE._replace(message_ms=1.0), Setting(500_000, 4_000_000)
    joined, single = (
        step(SIDES[f"ByteScheduler, {how}"], setting, place).seconds for how in ("joined", "tuned")
    )
    assert joined < single


def test_a_tuner_settles_where_nothing_beside_it_is_quicker() -> None:
    setting, tried = online(PLACE)
    assert tried <= 20
    side = SIDES["ByteScheduler"]
    assert step(side, setting, PLACE).seconds <= step(side, side.setting, PLACE).seconds


def test_bursts_are_recognised_and_noted_once(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    recognised(notes, 5)
    recognised(notes, 5)
    assert notes.lines == [{"kind": "bursts", "traces": 5, "right": 5, "flat": 1}]


@pytest.mark.parametrize("ratio", [0.1, 5.0])
def test_a_place_of_the_sweep_has_the_ratio_that_was_asked_for(ratio: float) -> None:
    place = sweep_place("ResNet-18", ratio)
    profile = place.profile()
    arithmetic_s = profile[0].ready_s + sum(layer.forward_s for layer in profile)
    bytes_s = sum(layer.numbytes for layer in profile) / place.wire().rate
    assert bytes_s / arithmetic_s == pytest.approx(ratio, rel=1e-4)


def line(seconds: dict[str, float] | None = None, place: Place = PLACE) -> dict[str, Any]:
    """A step in which each side takes a second, but for those that are told."""
    sides = {name: [1.0, 100_000, 200_000] for name in (*SIDES, ONLINE)}
    sides |= {name: [taken, 100_000, 200_000] for name, taken in (seconds or {}).items()}
    kept = {"overlap": 0.0, "idle": 0.1, "held": 0.0, "by_layer": True, "once": True}
    facts = {"kind": "step", **place._asdict(), "arithmetic_s": 0.5, "sides": sides}
    return facts | {"trials": 9, "audit": kept, "p3_idle": 0.2}


def goals(*lines: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {row[0]: (row[1], row[2]) for row in study(lines).sections[0].tables[0].rows}


def test_a_gain_is_over_the_best_of_those_that_were_tuned() -> None:
    found = line({TUNED[0]: 3.0, TUNED[1]: 2.0, TUNED[2]: 2.5, "Prophet": 1.25, "FIFO": 9.0})
    assert best(found) == 2.0
    assert gain(found, "Prophet") == pytest.approx(60.0)
    assert gain(found, "Prophet", over=1.0) == pytest.approx(-20.0)


def test_goals_are_judged_by_the_worst_place_or_the_best_one() -> None:
    slow = line({"Prophet": 1.1}, PLACE._replace(gbit=1.0))
    quick = line(dict.fromkeys(TUNED, 1.5))
    found = goals(slow, quick)
    assert found["Prophet takes at most as long as ByteScheduler, tuned"] == ("1 of 2 places", "missed")
    goal = "Prophet as published: 40 % over the best tuned scheduler by priority, with a server"
    words = "+50 % (ResNet-18, server, 3 Gbit/s, 0.1 ms per message)"
    assert found[goal] == (words, "met")
    assert goals(slow)[goal][1] == "missed"


def test_without_notes_no_goal_has_a_verdict() -> None:
    assert {verdict for _, verdict in goals().values()} == {"–"}


def test_a_fault_in_one_place_is_a_goal_missed() -> None:
    faulty = line()
    faulty["audit"] = faulty["audit"] | {"once": False}
    goal = "Prophet: every byte crosses once, so that sums are those of FIFO"
    assert goals(line(), faulty)[goal] == ("1 of 2 places", "missed")
