"""Models, contenders and platforms, by the keys that notes have. Pure."""

from __future__ import annotations

from tweed.workloads.double_ml.bill import Platform

#: Models, and their fields with learners.
LEARNERS = {
    "PLR": ("ml_l", "ml_m"),
    "PLIV": ("ml_l", "ml_m", "ml_r"),
    "IRM": ("ml_g", "ml_m"),
    "IIVM": ("ml_g", "ml_m", "ml_r"),
}
MODELS = tuple(LEARNERS)
#: What is timed.
CONTENDERS = ("loop", "fine", "coarse", "killed", "package")
#: Workers that theta has the same bits with.
WORKERS = (1, 2, 8)
#: Folds; the paper's tasks and trees; slots that are simulated besides as many as tasks.
FOLDS, TASKS, PAPER_TREES, SLOTS = 5, 1000, 500, (8, 16)
#: Platforms whose bills are simulated.
CORE_MB, CAPS = Platform().core_mb, (1000, 50)
MEMORIES_MB = (256, 512, 1024, CORE_MB, 3008)
