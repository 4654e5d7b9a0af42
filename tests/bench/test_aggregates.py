"""The table of rules that bear hostile contributions, and its goals."""

from __future__ import annotations

from bench import aggregates
from bench.goals import goals

ROWS = [
    {"part": "aggregates", "of": of, "side": side, "least_s": least_s} | more
    for of, side, least_s, more in (
        ("all", "a plain sum", 0.01, {}),
        ("median", "tweed", 0.02, {}),
        ("median", "ByzFL", 0.5, {"off": 0}),
        ("Phocas", "tweed", 0.05, {}),
    )
]


def test_rules_are_counted_in_plain_sums_and_beside_byzfl() -> None:
    assert list(aggregates.factors(ROWS)) == [("median", 2.0, 25.0), ("Phocas", 5.0, None)]
    assert "| median | ByzFL | 500 ms | 50.0x | 0 |" in aggregates.beside(ROWS)
    assert aggregates.beside([]) == ""


def test_goals_of_rules() -> None:
    text = goals(ROWS)
    assert "| median | at most 4 plain sums | 2.00 | yes |" in text
    assert "| median | 50x ByzFL | 25.0x ByzFL | **no** |" in text
    assert "| Phocas | at most 4 plain sums | 5.00 | **no** |" in text
