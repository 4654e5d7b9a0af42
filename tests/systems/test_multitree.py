"""The experiment on MultiTree: its schedules, its sums, its judgements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.collective import build, topology
from tweed.collective.chooser import fitting
from tweed.collective.topology import GIGABIT
from tweed.report.notes import Notes
from tweed.simulate import models, run, stragglers
from tweed.systems.multitree.report import sections
from tweed.systems.multitree.report_bounds import beside_bounds
from tweed.systems.multitree.report_goals import saved, verdicts
from tweed.systems.multitree.schedules import (
    BANDWIDTH,
    BEST,
    LARGE,
    SMALL,
    TRAINED,
    UNEVEN,
    WIRE,
    Cell,
    Times,
    bounded,
    grown,
    network,
    ratio,
    weak,
)

TORUS = topology.torus(4, 4, wire=WIRE)


@pytest.mark.parametrize("name", ["torus 4x4", "mesh 4x4", "torus 3x5", "fat-tree 64", "BiGraph 32"])
def test_trees_are_as_the_paper_says(name: str, tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    grown(notes, name)
    grown(notes, name)
    (found,) = notes.lines
    assert found["sends"] == found["ranks"] * (found["ranks"] - 1)
    assert found["reversed"]
    assert found["crowded"] == 0


@given(st.integers(0, 2**32), st.sampled_from(["all_reduce", "all_gather", "reduce_scatter"]))
def test_late_and_slow_ranks_end_with_the_exact_sum(seed: int, collective: str) -> None:
    # The simulator compares what every rank ends with; one that waits for ever is an error.
    slow = stragglers(16, share=0.5, factor=9.0, seed=seed)
    schedule = build(collective, "multitree", TORUS)
    result = run(schedule, 1 << 16, TORUS, seed=seed, late_s=1e-4, jitter_s=1e-5, slow=slow, piece=1000)
    assert result.seconds is not None


@pytest.mark.parametrize("name", ["fat-tree 64", "BiGraph 32", "BiGraph 64"])
def test_short_messages_on_switches_beat_rings_and_halving_and_long_ones_lose_nothing(name: str) -> None:
    links = network(name)
    rows = {
        row.name: row for row in fitting("all_reduce", links) if row.name in ("multitree", "ring", "hdrm")
    }
    assert len(rows) == (2 if name == "fat-tree 64" else 3)
    schedules = {name: build("all_reduce", name, links) for name in rows}
    short, long = (
        {name: run(schedule, size, links, header=16).seconds or 0.0 for name, schedule in schedules.items()}
        for size in (SMALL, LARGE)
    )
    assert min(short, key=short.__getitem__) == "multitree"
    assert long["multitree"] <= 1.01 * long["ring"]


def test_heads_cost_what_their_bytes_cost() -> None:
    schedule = build("all_reduce", "multitree", TORUS)
    plain, packets, messages = (
        run(schedule, LARGE, TORUS, **flow).seconds
        for flow in ({}, {"header": 16, "packet": 256}, {"header": 16})
    )
    assert plain is not None
    assert packets == pytest.approx(17 / 16 * plain, rel=1e-3)
    assert messages == pytest.approx(plain, rel=1e-4)


def line(builder: str, size: int, seconds: float | None, name: str = TRAINED, **facts: Any) -> dict[str, Any]:
    usual = {"collective": "all_reduce", "packets": False, "pieces": 1, "sliced_s": None}
    told = {"network": name, "builder": builder, "numbytes": size, "seconds": seconds}
    return {"kind": "time"} | usual | told | facts


def test_of_several_numbers_of_pieces_and_of_builders_the_quickest_counts() -> None:
    lines = [line("multitree", SMALL, 2.0), line("multitree", SMALL, 1.0, pieces=4)]
    lines += [line("ring", SMALL, 3.0), line("ring", LARGE, 0.5), line("ring", SMALL, 0.1, packets=True)]
    lines += [line("multitree", LARGE, None), line("bucket", LARGE, 0.6, sliced_s=0.4)]
    assert Times(lines).winner(TRAINED, "all_reduce", LARGE) == "bucket"
    lines.pop()
    times = Times(lines)
    assert times.of(Cell(TRAINED, "all_reduce", "multitree")) == {SMALL: 1.0}
    assert times.of(Cell(TRAINED, "all_reduce", BEST)) == {SMALL: 1.0, LARGE: 0.5}
    assert times.winner(TRAINED, "all_reduce", LARGE) == "ring"
    assert times.builders(TRAINED) == ["multitree", "ring", BEST]
    assert times.share(Cell(TRAINED, "all_reduce", "ring"), LARGE) == 0.5 * 16e9 / LARGE
    assert ratio(None, 1.0) is None
    assert weak("torus 16x16") == 256 * 375 * 1024


def test_claims_are_judged_by_the_figures() -> None:
    lines = [line("ring", LARGE, 3.5), line("multitree", LARGE, 1.0), line("ring_2d", LARGE, 1.3)]
    lines += [line("forest", LARGE, 0.66 * LARGE / 16e9, "mesh 4x4")]
    rows = {row[0]: row[1:] for row in verdicts(lines).rows}
    assert rows["torus 8x8, 64 MiB: at least 3× as fast as ring"] == ["3.50×", "met"]
    assert rows["torus 8x8, 64 MiB: at least 1.4× as fast as ring_2d"] == ["1.30×", "missed"]
    assert rows["mesh 4x4, 64 MiB: at or below 0.675 D/b"] == ["0.660 (forest)", "met"]
    assert rows["weak scaling, 256 ranks, 375 KiB each: about 3× over ring"] == ["–", "–"]


def test_a_training_step_is_put_together_from_its_layers() -> None:
    load = models.ncf()
    lines = [
        line(builder, layer.numbytes, seconds, packets=builder == "ring")
        for builder, seconds in (("ring", 3e-3), ("multitree", 1e-3))
        for layer in load.layers
    ]
    times = Times(lines)
    step = times.step(Cell(TRAINED, "all_reduce", "multitree"), "NCF", overlap=False)
    assert step is not None
    assert step.exchange_s == pytest.approx(8e-3)
    assert saved(times, "NCF", "ring", overlap=False) == pytest.approx(2 / 3, rel=1e-3)
    assert saved(times, "AlexNet", "ring", overlap=False) is None


def test_bounds_are_noted_once(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    bounded(notes, "torus 4x4", LARGE)
    bounded(notes, "torus 4x4", LARGE)
    assert [found["links"] for found in notes.lines] == [pytest.approx(15 / on) for on in (32, 64, 64)]
    assert network("torus 4x4") == TORUS


def test_uneven_networks_are_drawn_by_seed_and_have_the_same_links() -> None:
    for name in UNEVEN:
        assert network(name) == UNEVEN[name]()
    one, other = (network(f"BiGraph 2x6, seed {seed}") for seed in (0, 1))
    assert one != other and [link[:2] for link in one.links] == [link[:2] for link in other.links]
    assert {link[2] for link in one.links} == {GIGABIT.bandwidth >> shift for shift in range(3)}


def test_phases_are_set_beside_the_bound() -> None:
    names = ["DGX-1", *(f"BiGraph 2x6, seed {seed}" for seed in (0, 1, 2))]
    facts = {"kind": "bound", "collective": "reduce_scatter", "cut": 0.5, "links": 0.25, "why": "a cut"}
    lines: list[dict[str, Any]] = [{**facts, "network": name} for name in names]
    lines += [
        line("forest", LARGE, 0.5 * factor * LARGE / BANDWIDTH, name, collective="reduce_scatter")
        for name, factor in zip(names, (1.0, 1.1, 1.3, 1.2), strict=True)
    ]
    even, uneven, sites = beside_bounds(lines, Times(lines))
    assert even.tables[0].rows == [["DGX-1", "1.000", "1.000", "a cut"]]
    assert uneven.tables[0].rows == [["BiGraph 2x6, 3 draws", *["1.200 (1.300)"] * 2]]
    assert not sites.tables
    rows = {row[0]: row[1:] for row in verdicts(lines).rows}
    goal = "forest: reduce-scatter of 64 MiB within 2 % of the bound on all 1 networks"
    assert rows[goal] == ["at most 0.0%", "met"]


def test_multitree_is_set_beside_the_quickest_of_what_was_there_before() -> None:
    lines = [line("multitree", size, 1.0) for size in (SMALL, LARGE)]
    lines += [line("ring", SMALL, 3.0), line("ring", LARGE, 0.9), line("ring_2d", SMALL, 2.0)]
    (over,) = (part for part in sections(lines) if part.title == "Over sizes")
    assert over.tables[1].rows == [[TRAINED, "ring_2d 2.00×", "ring 0.90×"]]
