"""The table of faults names tests that are there, and the ways are the whole product."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

from tests.faults.conftest import WAYS

HOUSE = Path(__file__).parents[2]
NAMED = re.compile(r"`([\w/.]+\.(?:py|rs))::(\w+)`")


def test_each_test_that_the_table_names_is_there() -> None:
    named = NAMED.findall((HOUSE / "docs" / "faults.md").read_text())
    assert len(named) > 20
    for path, name in named:
        assert re.search(rf"(def|fn) {name}\(", (HOUSE / path).read_text()), f"{path}::{name}"


def test_the_ways_are_all_links_with_both_backends_and_half_of_each_without_metrics() -> None:
    ways = list(WAYS.values())
    assert {(way.binding, way.transport) for way in ways} == set(
        product(("native", "python"), ("auto", "tcp", "ltp"))
    )
    for part in ({"native"}, {"python"}, {"auto"}, {"tcp"}, {"ltp"}):
        assert {way.metrics for way in ways if part & set(way)} == {"0", "1"}
