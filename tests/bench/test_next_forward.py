"""The bench of the next forward pass: what its table says, and its models."""

from __future__ import annotations

from typing import Any

import pytest

from bench import next_forward
from bench.next_forward import ALONE, EVERY, EXCHANGE, ORDERED, PEER, Cell


def cell(exchange_s: float, **steps_s: float) -> list[Any]:
    times = {
        PEER: 2.0,
        EVERY: 2.0,
        **dict.fromkeys(ORDERED, 1.0),
        ALONE: 1.0,
        EXCHANGE: exchange_s,
        **steps_s,
    }
    facts = {"part": next_forward.PART, **Cell("CNN", 10, 8, 2)._asdict(), "apart": 0.0, "cpu_s": 0.2}
    return [{**facts, "side": side, "turns_s": [each_s] * 3} for side, each_s in times.items()]


def lines(rows: list[Any]) -> dict[str, str]:
    found = [line.split(" | ") for line in next_forward.table(rows).splitlines() if "CNN" in line]
    return {line[4]: " | ".join(line[6:8]) for line in found}


def test_a_missed_goal_is_bold_where_exchange_and_computing_take_about_as_long() -> None:
    shown = lines(cell(1.5, urgent=1.6, p3=1.6))
    assert shown["urgent"] == "**1.25 (1.25 to 1.25)** | 0.94"
    assert shown["prophet"] == "2.00 (2.00 to 2.00) | 1.50"
    assert shown[EVERY] == "1.00 (1.00 to 1.00) | 0.75"  # no goal is for it
    assert lines(cell(2.5, urgent=2.0))["urgent"] == "1.00 (1.00 to 1.00) | 1.25"  # nor beyond a ratio of 2
    assert next_forward.table([]) == ""


def test_the_exchange_s_own_work_is_added_to_computing() -> None:
    assert lines(cell(0.5, p3=1.2))["p3"].endswith("| 0.92")  # 1.0 s and 0.2 s on two cores


@pytest.mark.parametrize(("model", "millions"), [("CNN", 2.2), ("transformer", 9.5)])
def test_models_are_as_large_as_they_say(model: str, millions: float) -> None:
    make, _ = next_forward.MODELS[model]
    assert sum(one.numel() for one in make().parameters()) / 1e6 == pytest.approx(millions, abs=0.1)
