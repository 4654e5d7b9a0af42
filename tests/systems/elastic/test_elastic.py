"""The report of members that come and go, from lines that were never measured."""

from __future__ import annotations

from typing import Any

import pytest

from tweed.report.study import markdown
from tweed.systems.elastic.contenders import OURS, SETTINGS
from tweed.systems.elastic.report import LATE_S, study, verdicts


def struck(what: str, late_s: list[float], side: str = OURS, workers: int = 4) -> dict[str, Any]:
    line = {"kind": "struck", "side": side, "workers": workers, "what": what, "step_s": 0.2}
    return line | {"late_s": late_s, "back_s": [2.0] * len(late_s)}


def lines() -> list[dict[str, Any]]:
    example, short = SETTINGS
    spans = {"spans_s": [1.0, 1.2, 1.9], "joined_s": 9.0, "copied_s": 3.0, "equal": True}
    trained = {"kind": "trained", "members": 8, "kills": 500, "steps": 9, "epochs": 3, "seconds": 1.0}
    trained |= {"task": "digits", "equal": True, "test_apart": 1e-3}
    trained |= {"held": [[100, 40, 8], [109, 40, 7]], "members_over_time": [[0.0, 8], [0.5, 7], [0.8, 8]]}
    return [
        *(struck(what, [0.1, 0.1, 0.9], workers=workers) for workers in (4, 8) for what in LATE_S),
        struck("kill", [5.2], example),
        struck("kill", [1.3], short),
        {"kind": "join", "numel": 9, "plain_s": 1.0, **spans},
        {"kind": "1 donors", "bytes": 9, "given_s": 8.0},
        {"kind": "4 donors", "bytes": 9, "given_s": 2.1},
        {"kind": "unharmed", "members": [0.205], "plain": [0.2]},
        {"kind": "replay", "trained": [0.05], "replayed": [0.001]},
        trained | {"type": "float64", "apart": 1e-15, "losses_apart": 1e-15},
        trained | {"type": "float32", "apart": 1e-6, "losses_apart": 1e-6},
        trained | {"type": "float32", "task": "fashion-mnist", "apart": 1e-6, "losses_apart": 1e-6},
        {"kind": "checkpoints", "bytes": 10**8, "seconds": {"tweed": [0.1, 0.1], "async_save": [0.5, 0.6]}},
    ]


def test_all_goals_can_be_met() -> None:
    found = list(verdicts(lines()))
    assert len(found) == 27 and all(met is True for _, _, met in found)
    text = markdown(study(lines()), "")
    assert "torchft was not" not in text and text.count("-members.svg") == 1


def test_older_notes_have_no_picture_and_no_verdict_on_what_was_held() -> None:
    older = [{k: v for k, v in line.items() if k not in ("held", "members_over_time")} for line in lines()]
    assert [met for _, _, met in verdicts(older)].count(None) == 1
    assert "-members.svg" not in markdown(study(older), "")


def test_without_lines_nothing_is_judged() -> None:
    assert {met for _, _, met in verdicts([])} == {None}
    assert "`pip install torchft-nightly`" in markdown(study([]), "")


@pytest.mark.parametrize(
    ("facts", "change", "missed"),
    [
        ({"what": "kill", "workers": 4, "side": OURS}, {"late_s": [0.6, 0.6, 1.1]}, 4),  # and beside torchft
        ({"what": "cut", "workers": 8}, {"late_s": [2.0, 2.1, 3.5]}, 1),
        ({"side": next(iter(SETTINGS))}, {"late_s": [0.9]}, 1),
        ({"type": "float64"}, {"apart": 1e-11}, 1),
        ({"type": "float32"}, {"equal": False}, 2),
        ({"type": "float64"}, {"held": [[100, 40, 8], [111, 40, 8]]}, 1),
        ({"type": "float64"}, {"held": [[100, 40, 8], [100, 41, 8]]}, 1),
        ({"type": "float64"}, {"held": [[100, 40, 8], [100, 40, 9]]}, 1),
        ({"task": "fashion-mnist"}, {"test_apart": 0.02}, 1),
        ({"kind": "4 donors"}, {"given_s": 3.0}, 1),
        ({"kind": "unharmed"}, {"members": [0.21]}, 1),
        ({"kind": "replay"}, {"trained": [0.004]}, 1),
        ({"kind": "join"}, {"spans_s": [2.5]}, 2),
        ({"kind": "join"}, {"equal": False}, 1),
        ({"kind": "checkpoints"}, {"seconds": {"tweed": [0.2], "async_save": [0.5]}}, 1),
    ],
)
def test_a_goal_is_missed(facts: dict[str, Any], change: dict[str, Any], missed: int) -> None:
    changed = [line | change if facts.items() <= line.items() else line for line in lines()]
    assert [met for _, _, met in verdicts(changed)].count(False) == missed
