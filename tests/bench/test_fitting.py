"""Schedules on their networks: how pairs become tables, goals and a picture, and one live measurement."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import alone, fitting, foreseen, goals, pictures
from bench.calibrated import Machine
from bench.punctual import Call, Turns
from bench.run import Row
from tweed.collective import topology
from tweed.collective.topology import Wire
from tweed.testbed import linked

KB, MB = 1 << 10, 1 << 20


def timed(side: str, numbytes: int, measured_s: float, predicted_s: float | None, **marks: object) -> Row:
    row: Row = {"part": fitting.PART, "network": "torus", "ranks": 9, "bytes": numbytes, "side": side}
    row |= {"median_s": measured_s, "predicted_s": predicted_s, "seen": False, "doubts": []}
    return row | marks


ROWS = [
    {"part": "calibration", "message_s": 5e-5, "wake_s": 1e-4, "late_s": 0.0},
    timed("ring", KB, 10e-3, 11e-3),
    timed("multitree", KB, 5e-3, 5.05e-3),
    timed("forest", KB, 4.9e-3, 6e-3),
    timed("gloo", KB, 50e-3, None),
    timed("ring", MB, 1.0, 1.2, doubts=["too late"]),
    timed("multitree", MB, 0.5, 0.45),
    timed("forest", MB, 0.3, 0.46),
    timed("gloo", MB, 2.0, None),
]


def test_pairs_make_errors_and_picks() -> None:
    text = foreseen.schedules(ROWS)
    assert "50.0 µs for a message at each end, 100 µs to wake up" in text
    assert "| all | 6 | 15.0% | 3 | 10.0% | forest, 1 MB: 53% |  |" in text
    assert "| torus | 6 | 15.0% | 3 | 10.0% | forest, 1 MB: 53% | too late |" in text
    assert "| torus | 9 | 1 KB | multitree | 5.05 ms | 5.00 ms | forest | +2% | 2.00x |  | 10.0x |  |" in text
    assert "| multitree | 450 ms | 500 ms | forest | +67% |" in text
    assert foreseen.schedules([ROWS[0]]) == ""


def test_goals_count_picks_on_networks_that_nobody_had_seen() -> None:
    text = goals.goals(ROWS)
    assert "6 pairs of schedule, size and network | median within 10% | 15.0% | **no** |" in text
    assert "3 pairs of schedule, size and network below 64 KB | median within 25% | 10.0% | yes |" in text
    assert "2 networks and sizes not seen before | 9 of 10 | 1 of 2 | **no** |" in text
    seen = [row | {"seen": True} for row in ROWS]
    assert "not seen before" not in goals.goals(seen)


def test_two_sites_are_judged_beside_gloo_and_the_ring() -> None:
    here = {"network": "sites 4 4, 100 Mbit/s, 20 ms"}
    rows = [
        timed("hierarchy", 25 * MB, 2.0, 2.2),
        timed("ring", 25 * MB, 3.0, 3.5),
        timed("gloo", 25 * MB, 5.0, None),
    ]
    text = goals.goals([row | here for row in rows])
    assert "by hierarchy | 2x Gloo | 2.50x Gloo | yes |" in text
    assert "no more than 5 % slower than the ring | 1.50x the ring | yes |" in text


def test_the_picture_has_every_network(tmp_path: Path) -> None:
    pictures.draw_predictions(ROWS, tmp_path / "pairs.svg")
    text = (tmp_path / "pairs.svg").read_text()
    assert "torus" in text
    assert "6 pairs, median error 15.0%" in text
    pictures.draw_predictions([], tmp_path / "none.svg")
    assert not (tmp_path / "none.svg").exists()


def test_a_call_lasts_from_the_last_beginning_to_the_last_end() -> None:
    row = alone.row_of([[Call(0.0, 1.0), Call(0.0, 2.0)], [Call(0.5, 0.9), Call(0.0, 1.0)]])
    assert (row["least_s"], row["most_s"], row["late_calls"]) == (0.5, 2.0, 1)


def test_a_network_as_it_is_built_is_later_at_ranks_and_behind_the_emulator() -> None:
    network = topology.star(2, Wire(1000, 1e-3))
    links = Machine(message_s=1e-5, wake_s=1e-4, late_s=1e-5).seen(network).links
    assert {(a, b): latency_s for a, b, _, latency_s, _ in links} == pytest.approx(
        {(0, 2): 1.01e-3, (1, 2): 1.01e-3, (2, 0): 1.11e-3, (2, 1): 1.11e-3}
    )


@pytest.mark.usefixtures("namespaces")
def test_sides_run_in_turns_over_links() -> None:
    network = topology.line(2)
    plans = {str(one): alone.plan_of(one, network).to_json() for one in alone.tried(network, ("ring",))}
    with linked(network) as bed:
        found = alone.timed(bed, plans | {"gloo": ""}, [(side, KB) for side in (*plans, "gloo")], Turns(1, 2))
    assert {side for side, _ in found} == {*plans, "gloo"}
    assert all(len(calls) == 2 and alone.row_of(calls)["median_s"] > 0 for calls in found.values())
