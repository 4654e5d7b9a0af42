"""A quick look goes from measurements to a report, and a second one measures nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tweed.report.notes import Notes
from tweed.systems import system
from tweed.systems.double_ml.measured import has_package
from tweed.testbed import preload

preload("tweed.systems.double_ml")

EXACT = "errors averaged every step: all gradients are taken at the point that analysis follows"
#: By system: lines of notes (None: many), the first titles of the report, and goals that must be met.
QUICK: dict[str, tuple[int | None, list[str], list[str]]] = {
    "coded_matmul": (
        2 + 3 + 1 + (3 + 2) * (4 + 1) + 1 + 4,
        ["Goals", "By the model of delays", "Live", "Codes", "What coding costs", "To keep in mind"],
        [
            "float64: every subset up to 12 parts gives the product to 1e-10",
            "a code that loses more than 6 digits is refused: Chebyshev points for 100 parts",
        ],
    ),
    "cser": (3 * 6, ["Goals", "What is learned: digits"], []),
    "dct": (
        6 + 3 * 10,
        ["Goals", "What is learned and sent", "Two stages of a model", "Encoding", "To keep in mind"],
        [
            "digits: DCT sends within 1.2× of what was asked for from step 10 on",
            "digits: DCT: 100× fewer values sent",
            "digits: DCT: 100× fewer bytes sent",
            "digits: two stages: 20× fewer values and bytes cross",
            "digits: two stages, a tenth: 20× fewer bytes cross",
        ],
    ),
    "epsl": (
        8 + 1 + 2 + 1 + 3 + 4 * (1 + 1 + 1),
        ["Goals", "What is learned, 5 clients", "Simulated rounds", "Time to an accuracy", "Live"],
        [
            "rows that the server propagates backwards, and that it sends: m + C (b - m), exactly",
            "100 places of clients: no block of the descent makes a round longer",
            "3 clients, 6 subchannels, 3 cuts: within 5 % of the best of all allocations",
        ],
    ),
    "fixed_points": (
        3 * (1 + 1 + 1) + 1 + 3 * 5 + 5,
        ["Goals", "Pictures of digits", "Linear task", "Steps", "To keep in mind"],
        ["the linearised: no eigenvalue's real part goes past 1"],
    ),
    "double_ml": (
        2 * 2 * 2 + 4 + 2 + 1 + 2 * has_package() + 4 + 3 + 2 * 2 * 5,
        [
            "Goals",
            "Time on this machine",
            "Coverage",
            "More slots, simulated",
            "What is sent",
        ],
        [
            "5 % of the tasks killed: the same bits as in one process, in each round",
            "fine tasks: 8× smaller than with lists of ids in JSON",
            "what is shared comes to each worker once",
            "simulated bills are the sum of durations times memory, exactly",
        ],
    ),
    "mlfabric": (
        2 + 3 * 18,
        [
            "Goals",
            "C3, N-dynamic: a transfer takes 2.0% of a step",
            "C3, N-dynamic: a transfer takes 8.0% of a step",
        ],
        ["no update later than the bound, and nothing moved of what was dropped"],
    ),
    "multitree": (
        None,
        ["Claims", "Large messages"],
        ["torus 4x4: 5 steps a phase", "torus 4x4, 64 MiB: below 0.625 D/b"],
    ),
    "prophet": (
        1 + 2 + 4 + 1,
        [
            "Goals",
            "Steps with a server, where a message costs 0.1 ms",
            "What is gained, by what a message costs",
        ],
        [
            "the 12 bursts of ResNet-50's published profile are found in every trace with jitter",
            "Prophet: every byte crosses once, so that sums are those of FIFO",
            "Prophet: after the last gradient all goes strictly by layer",
        ],
    ),
    "target_propagation": (
        9 * (1 + 1) + 6 + 2 + 1 + 2,
        ["Goals", "What is learned", "The search for learning rates", "What it costs", "To keep in mind"],
        ["a pipeline of two stages is one process to 1e-6"],
    ),
    "teasq": (
        1 + 3 * 14,
        ["Goals", "What is learned in which time", "The search for a schedule", "To keep in mind"],
        ["a quarter of the bytes per contribution, both ways together"],
    ),
    "straggler_messages": (
        3 * 8 + 6 * 8 + 3 * 2 + 2 + 2 + 1,
        ["Goals", "An iteration", "What a message costs", "The choice of scheme and load"],
        ["a Lagrange code on the circle, 20 shards, random arrivals: to 1e-6"],
    ),
    "zeno": (
        3 * (5 * 6 + 1 + 2 * 4),
        ["Goals", "What is learned, in step", "What is learned, one by one", "False verdicts, one by one"],
        [],
    ),
    "zeno_ps": (
        3 * (2 + 3 * 4 + 2 + 5),
        ["Goals", "What is learned, a fifth of layers hostile", "Accuracy over epsilon", "To keep in mind"],
        [],
    ),
    "rules": (3 * 3, ["Goals", "Data evenly dealt", "To keep in mind"], []),
    "saef": (2 + 3, ["Goals"], [EXACT]),
}


#: Half a minute each, over a hub's training that `zeno_ps` has too, or parts that have tests of their own.
LONG = ("epsl", "teasq", "zeno")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.soak if name in LONG else ()) for name in QUICK]
)
def test_a_quick_look_goes_from_measurements_to_a_report(name: str, tmp_path: Path) -> None:
    lines, titles, met = QUICK[name]
    notes = Notes(tmp_path)
    system(name).experiment(notes, True)
    count = len(notes.lines)
    system(name).experiment(Notes(tmp_path), True)
    assert len(Notes(tmp_path).lines) == count == (lines or count)
    found = system(name).study(notes.lines)
    assert [section.title for section in found.sections][: len(titles)] == titles
    goals = {row[0]: row[2] for row in found.sections[0].tables[0].rows}
    assert [goals[goal] for goal in met] == ["met"] * len(met)
