"""The tables of docs/choosing.md have what was measured, and say so where nothing was."""

from __future__ import annotations

from typing import Any

import pytest

from tweed.systems.choosing import UNKNOWN, quickest, sections
from tweed.systems.compression.contenders import BBR, LOSSES, RATES, congested, place
from tweed.systems.compression.report import ALL_WORDS
from tweed.systems.compression.report_step_times import draw
from tweed.systems.harness.time_to_accuracy import DDP

Lines = list[dict[str, Any]]


def timed(side: str, seconds: float) -> dict[str, Any]:
    steps = {"steps": [10], "seconds": [10 * seconds], "link_bytes": 5e4}
    return {"kind": "step_times", "side": side, "rate": "10mbit", **steps}


def trained(side: str, accuracy: float) -> dict[str, Any]:
    return {"kind": "training", "side": side, "rate": "this host", "seed": 0, "curve": [[8, 1.0, accuracy]]}


NAMELESS = "top-k 1 %"
LINES = [
    *(timed(side, seconds) for side, seconds in ((DDP, 1.0), ("DCT", 0.2), ("SAEF", 0.3), (NAMELESS, 0.1))),
    *(trained(side, 0.9) for side in (DDP, "SAEF", NAMELESS)),
]


def rows(compressed: Lines, exchanged: Lines) -> dict[str, list[str]]:
    return {name: list(cells) for name, *cells in sections(compressed, exchanged)[0].tables[0].rows}


@pytest.mark.parametrize(("reached", "expected"), [(0.8951, "DCT"), (0.8949, "SAEF")])
def test_the_quickest_learns_as_ddp_does_and_has_a_name(reached: float, expected: str) -> None:
    assert quickest([*LINES, trained("DCT", reached)], "10mbit") == expected


def test_cells_are_what_was_measured() -> None:
    found = rows([*LINES, trained("DCT", 0.91)], [])
    ours, theirs = ["200 ms", "5.00 KB", "91.00%"], ["1,000 ms", "5.00 KB", "90.00%"]
    assert found["10 Mbit/s, 0 % lost"] == ["`dct(sparsity=0.99)`", *ours, DDP, *theirs]


def test_what_links_lose_is_a_place_of_its_own() -> None:
    lossy = [timed(DDP, 2.0) | {"rate": place("10mbit", "1 %")}]
    assert rows([*LINES, *lossy], [])["10 Mbit/s, 1 % lost"][4:6] == [DDP, "2,000 ms"]


def test_a_peer_has_the_congestion_control_that_is_quicker() -> None:
    lossy = place("10mbit", "1 %")
    both = [timed(DDP, 2.0) | {"rate": lossy}, timed(DDP, 1.5) | {"rate": congested(lossy, BBR)}]
    assert rows([*LINES, *both], [])["10 Mbit/s, 1 % lost"][4:6] == [f"{DDP}, bbr", "1,500 ms"]


def test_at_the_fastest_rate_all_sides_have_turns_of_their_own() -> None:
    assert [place(rate, "0 %") for rate in ALL_WORDS] == [*RATES, "10gbit,loss=0%"]


def test_what_nobody_measured_is_called_so() -> None:
    assert {cell for cells in rows([], []).values() for cell in cells} == {UNKNOWN}


def test_all_rates_and_losses_are_there() -> None:
    names = list(rows([], []))
    wanted = [f"{rate}, {loss} lost" for rate in ALL_WORDS.values() for loss in LOSSES]
    assert [start for start in wanted if not any(name.startswith(start) for name in names)] == []


def test_a_transport_counts_where_it_did_not_fail() -> None:
    place = {"kind": "exchange", "place": "3 %, 40 ms, 500 Mbit/s"}
    sides = ("ltp", "late", 0.1), ("bbr", None, 0.2), ("cubic", None, 4.0)
    lines = [place | {"side": side, "failed": failed, "steps_s": [each]} for side, failed, each in sides]
    cells = rows([], lines)["100 Mbit/s, 3 % lost, round trips of 40 ms"]
    assert (cells[:2], cells[4:6]) == (["TCP, bbr", "200 ms"], ["TCP, bbr", "200 ms"])


def test_the_picture_has_what_was_timed() -> None:
    lossless, lossy = draw([*LINES, timed(DDP, 2.0) | {"rate": place("10mbit", "3 %")}]).axes
    assert [list(line.get_ydata()) for line in lossless.get_lines()] == [[1.0]]
    assert [list(line.get_ydata()) for line in lossy.get_lines()] == [[2.0]]
