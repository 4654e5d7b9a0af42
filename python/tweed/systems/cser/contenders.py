"""Methods by the keys that notes have, and what each is at a compression ratio. Pure."""

from __future__ import annotations

from tweed.recipes.named import named_strategy
from tweed.strategy import Strategy

SIDES = ("CSER", "CSEA", "CSER-PL", "QSparse-local-SGD", "EF-SGD")

#: By ratio. At 1,024 times the paper resets every 256 steps; trainings here are too short for that.
METHODS = {
    ratio: dict(zip(SIDES, named, strict=True))
    for ratio, named in {
        32: ("cser(64, 4, 16)", "csea(32)", "cser_pl(8, 4)", "qsparse_local(4, 8)", "ef_sgd(32)"),
        256: ("cser(512, 16, 32)", "csea(256)", "cser_pl(16, 16)", "qsparse_local(32, 8)", "ef_sgd(256)"),
        1024: (
            "cser(2048, 64, 32)",
            "csea(1024)",
            "cser_pl(32, 32)",
            "qsparse_local(128, 8)",
            "ef_sgd(1024)",
        ),
    }.items()
}
#: Which method is claimed to be ahead of which.
ORDER = (
    ("CSER", "CSEA"),
    ("CSER", "CSER-PL"),
    ("CSEA", "QSparse-local-SGD"),
    ("CSER-PL", "QSparse-local-SGD"),
    ("QSparse-local-SGD", "EF-SGD"),
)
DENSE = "dense"
WORKERS = 8


def strategy(label: str, ratio: int) -> Strategy:
    """What a method is at a compression ratio. Dense: all steps are averaged as they are."""
    return Strategy("step") if label == DENSE else named_strategy(METHODS[ratio][label])
