"""From notes to tables, plots and verdicts: pure."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.systems.lines import everything, exchange, training_run
from tweed.errors import UsageError
from tweed.report import charts, comparison, study
from tweed.report.plots import svg
from tweed.systems import SYSTEMS, system
from tweed.systems.ltp.contenders import GRID, OURS, SEVERAL, SIDES, Place, over
from tweed.systems.ltp.report import verdicts

every_system = pytest.mark.parametrize("name", SYSTEMS)
FACTS: dict[str, Any] = {
    "settings": {"system": "ltp", "quick": False},
    "command": "tweed reproduce '<b>'",
    "versions": {"tweed": "0.1.0"},
    "machine": {"processor": "a processor", "cores": 2, "memory_bytes": 2**34, "kernel": "6.1"},
    "started": "2026-11-20 17:00 UTC",
}


@every_system
def test_a_row_is_a_system(name: str) -> None:
    found = system(name)
    assert found.title and found.paper and found.parts
    assert found.study([]).title


def test_an_unknown_system_lists_the_known() -> None:
    with pytest.raises(UsageError, match=r"no system 'ptl'; there are .*ltp"):
        system("ptl")


def test_speeds_name_what_failed_and_what_was_short() -> None:
    lines = [
        exchange("a", "ltp", [0.5] * 9),
        exchange("a", "reno", [5.0] * 3),
        exchange("a", "bbr", [], failed="a peer"),
    ]
    [row] = comparison.speeds(lines, ["a"], ["ltp", "reno", "bbr"]).rows
    assert row == ["a", "512", "51.2 (3 steps)", "failed", "10.0×", "–"]
    assert comparison.failures(lines) == ["bbr failed at a: a peer"]


def test_an_exchange_stands_beside_its_bound() -> None:
    [row] = comparison.exchanges([exchange("a", "ltp", [0.31] * 5, lost=0.02)], ["a", "b"], "ltp").rows
    assert row == ["a", "0.3", "0.1", "0.2", "98.00%"]


def verdict(lines: list[Any], goal: str) -> tuple[str, str]:
    [found] = [row for row in comparison.goals(verdicts(lines)).rows if goal in row[0]]
    return found[1], found[2]


BAD = Place("3 %").name


@pytest.mark.parametrize(
    ("theirs", "lost", "expected"),
    [
        (6.0, 0.02, (f"in 1 of 1; least 20.00× ({BAD})", "met")),
        (5.9, 0.0, (f"in 0 of 1; least 19.67× ({BAD})", "missed")),
        (30.0, 0.03, (f"in 0 of 1; least 0.00× ({BAD})", "missed")),
    ],
)
def test_a_factor_counts_only_where_enough_arrived(
    theirs: float, lost: float, expected: tuple[str, str]
) -> None:
    lines = [exchange(BAD, "ltp", [0.3] * 5, lost), exchange(BAD, "reno", [theirs] * 3)]
    assert verdict(lines, "20× reno") == expected
    assert verdict(lines, "20× cubic") == ("–", "–")


def test_one_cell_behind_bbr_is_named() -> None:
    cells = {Place("3 %"): 0.31, Place("20 %", "150", "100"): 0.6}
    lines = [exchange(place.name, "ltp", [step]) for place, step in cells.items()]
    lines += [exchange(place.name, "bbr", [0.3 if step < 0.5 else 0.9]) for place, step in cells.items()]
    assert verdict(lines, "that of bbr") == (f"in 1 of 2; least 0.97× ({BAD})", "missed")


def test_without_loss_the_quickest_stream_counts() -> None:
    place = Place("0 %", "1").name
    steps = {"ltp": 0.31, "reno": 0.4, "cubic": 0.3, "bbr": 0.5}
    lines = [exchange(place, name, [step]) for name, step in steps.items()]
    assert verdict(lines, "single TCP stream") == (f"in 1 of 1; least 0.97× ({place})", "met")


@pytest.mark.parametrize(("theirs", "met"), [(0.8, "met"), (0.7, "missed")])
def test_the_tail_is_beside_that_of_bbr(theirs: float, met: str) -> None:
    lines = [exchange(BAD, "ltp", [0.3] * 9 + [0.4]), exchange(BAD, "bbr", [0.3] * 9 + [theirs])]
    assert verdict(lines, "99th percentile at most half")[1] == met


@pytest.mark.parametrize(("most", "met"), [(0.3, "met"), (0.5, "missed")])
def test_the_worst_loss_decides_on_immunity(most: float, met: str) -> None:
    places = zip(("0 %", "0.1 %", "1 %"), (0.26, most, 0.26), strict=True)
    lines = [exchange(Place(loss, "1").name, "ltp", [step] * 5) for loss, step in places]
    assert verdict(lines, "2× of that without loss, 1 ms")[1] == met
    assert verdict(lines, "2× of that without loss, 40 ms") == ("–", "–")


def test_every_place_is_a_network() -> None:
    for place in GRID:
        assert over(place).direction(1, up=True).rate_bits == 10**8
    assert len({place.name for place in GRID}) == len(GRID)


@pytest.mark.parametrize(("accuracy", "met"), [(0.896, "met"), (0.894, "missed")])
def test_accuracy_is_compared_by_seed(accuracy: float, met: str) -> None:
    lines = [training_run("digits", "reliable", seed, 0.9) for seed in range(5)]
    lines += [training_run("digits", "ltp", seed, accuracy, 0.02) for seed in range(6)]
    points = f"{100 * (accuracy - 0.9):+.2f}"
    assert verdict(lines, "digits, ltp") == (
        f"{points} points ({points} to {points}; 5 seeds), 2.0% lost",
        met,
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_the_report_stands_alone_and_says_all(seed: int) -> None:
    found = system("ltp").study(everything(seed))
    page = study.page(found, FACTS)
    assert re.findall(r'(?:src|href)="(?!#)', page) == []
    assert "&lt;b&gt;" in page and page.count("<svg") == 4
    for place in GRID:
        assert place.name in page
    for label in SIDES:
        assert label in page


def test_a_report_of_nothing_yet_is_a_report() -> None:
    assert "Goals" in study.page(system("ltp").study([]), FACTS)


def test_figures_go_between_the_marks_of_a_page(tmp_path: Path) -> None:
    path = tmp_path / "ltp.md"
    path.write_text("# Words\n<!-- figures: begin -->\nold\n<!-- figures: end -->\nmore words\n")
    study.put_in(path, system("ltp").study(everything()))
    text = path.read_text()
    assert text.startswith("# Words\n<!-- figures: begin -->\n### Goals") and text.endswith(
        "-->\nmore words\n"
    )
    assert "\nold\n" not in text
    plots = re.findall(r"\]\((\S+\.svg)\)", text)
    assert plots == ["ltp-throughput-500.svg", "ltp-throughput-100.svg", "ltp-incast.svg", "ltp-accuracy.svg"]
    assert all((tmp_path / plot).read_text().startswith("<svg") for plot in plots)
    path.write_text("no marks")
    with pytest.raises(UsageError, match="nothing says where figures go"):
        study.put_in(path, system("ltp").study([]))


def test_equal_figures_give_equal_plots() -> None:
    panels = {"a": {"ltp": [1.0, None, 2.0], "reno": [0.5, 0.25, None]}}
    one, other = (svg(charts.over_conditions(panels, ["0", "1", "3"], ("x", "y"))) for _ in range(2))
    assert one == other


def test_sides_differ_in_what_they_run_over_alone() -> None:
    strategies = {label: side.strategy for label, side in {**SIDES, **SEVERAL}.items()}
    assert {strategy.collective for strategy in strategies.values()} == {strategies[OURS].collective}
    assert {strategy.exchange for strategy in strategies.values()} == {"gradient"}
    assert SIDES["reno"].environment["TWEED_STREAMS"] == "1"
    assert SEVERAL["bbr ×4"].environment["TWEED_CONGESTION"] == "bbr"
    assert SEVERAL["bbr ×4"].environment["TWEED_STREAMS"] == "4"
