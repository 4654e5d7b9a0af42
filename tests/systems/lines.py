"""Notes of an experiment that was never run, for reports and goals."""

from __future__ import annotations

import random
from typing import Any

from tweed.systems.ltp import SEEDS, STEPS
from tweed.systems.ltp.contenders import GRID, SHALLOW, SIDES, VARIANTS

BOUND_S, WORDS = 0.1, "100 Mbit/s per worker"


def exchange(
    place: str, side: str, steps_s: list[float], lost: float = 0.0, failed: str | None = None
) -> Any:
    contributed = 1_000_000 if side == "ltp" else 0
    facts = {"kind": "exchange", "place": place, "words": WORDS, "bound_s": BOUND_S, "samples": 256}
    facts |= {"side": side, "steps_s": steps_s, "sync_s": [step - 0.01 for step in steps_s]}
    sent = {"contributed_bytes": contributed, "lost_bytes": round(contributed * lost)}
    return facts | sent | {"failed": failed}


def training_run(task: str, variant: str, seed: int, accuracy: float, lost: float = 0.0) -> Any:
    facts = {"kind": "training_run", "task": task, "variant": variant, "seed": seed}
    return facts | {"accuracy": accuracy, "lost": lost, "words": WORDS}


def everything(seed: int = 0) -> list[Any]:
    """A line for all that the experiment measures, with values that are drawn."""
    draw = random.Random(seed)
    lines: list[Any] = [
        {"kind": "workload", "task": "fashion-mnist", "shapes": [[10]], "compute_s": 0.01, "batch": 32}
    ]
    for place in [*(place.name for place in GRID), SHALLOW]:
        for number, side in enumerate(SIDES):
            slow = 1 + number * (40 if place.startswith("3 %, 40 ms") else 0.2)
            steps = [0.3 * slow * draw.uniform(0.9, 1.3) for _ in range(3 if slow > 9 else 20)]
            lines.append(exchange(place, side, steps, 0.01))
    for task in STEPS:
        for variant in VARIANTS:
            for each in SEEDS:
                lines.append(training_run(task, variant, each, 0.9 + draw.uniform(-0.004, 0.004), 0.02))
    return lines
