"""Goals and tables of the experiment on rules for hostile contributions. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from tweed.report.comparison import Goal, goals, missing
from tweed.report.notes import Line, values, where
from tweed.report.study import Section, Study, Table
from tweed.systems.rules.contenders import CLEAN

#: The day since when the goals stand.
FIXED = "2026-11-22"
#: Points that a rule may lose without an attack; and rules whose name says what lifts which.
POINTS = 1.0
LIFTED = (("bucketing, Krum", "Krum"), ("bucketing, median", "median"),
          ("mixing, Krum", "Krum"), ("mixing, median", "median"))  # fmt: skip


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    runs = where(lines, kind="training")
    parts = [Section("Goals", tables=[goals(_goals(runs), fixed=FIXED)])]
    parts += [_table(where(runs, partition=name), name) for name in values(runs, "partition")]
    lead = "Two of twelve workers are hostile: what does each rule keep, under the worst of attacks?"
    return Study("Rules for hostile contributions", lead, [*parts, _words(runs)])


def accuracy(runs: Sequence[Line], rule: str, attack: str) -> float | None:
    """In percent, the mean over seeds."""
    found = [line["attacks"][attack] for line in where(runs, rule=rule) if attack in line["attacks"]]
    return 100 * fmean(found) if found else None


def worst(runs: Sequence[Line], rule: str) -> tuple[float, str] | None:
    """Under which attack a rule's accuracy is least, and what it is."""
    mine = where(runs, rule=rule)
    found = [(accuracy(mine, rule, attack) or 0.0, attack) for attack in (mine[0]["attacks"] if mine else ())]
    return min(found, default=None)


def _goals(runs: Sequence[Line]) -> Iterator[Goal]:
    even, sorted_ = (where(runs, partition=name) for name in ("iid", "by_label"))
    base = accuracy(even, "mean", CLEAN)
    for rule in values(even, "rule"):
        if rule != "mean":
            goal = f"evenly dealt, no attack: {rule} within {POINTS:g} point of the mean"
            mine = accuracy(even, rule, CLEAN)
            if mine is None or base is None:
                yield missing(goal)
            else:
                yield goal, f"{mine - base:+.1f} points", mine - base >= -POINTS
    for better, plain in LIFTED:
        goal = f"sorted by label, worst attack: {better} above {plain}"
        pair = [worst(sorted_, rule) for rule in (better, plain)]
        if pair[0] is None or pair[1] is None:
            yield missing(goal)
        else:
            yield goal, f"{pair[0][0]:.1f} ({pair[0][1]}), {pair[1][0]:.1f} ({pair[1][1]})", pair[0] > pair[1]


def _table(runs: Sequence[Line], partition: str) -> Section:
    attacks = list(runs[0]["attacks"])
    rows = []
    for rule in values(runs, "rule"):
        cells = [accuracy(runs, rule, attack) for attack in attacks]
        least = worst(runs, rule)
        last = "–" if least is None else f"{least[0]:.0f} ({least[1]})"
        rows.append([rule, *("–" if cell is None else f"{cell:.0f}" for cell in cells), last])
    words = {"iid": "evenly dealt", "by_label": "sorted by label"}[partition]
    table = Table("Accuracy in percent", ["", *attacks, "worst"], rows)
    return Section(f"Data {words}", tables=[table])


def _words(runs: Sequence[Line]) -> Section:
    seeds = len(values(runs, "seed")) if runs else 0
    words = (
        f"The mean over {seeds} seeds, of the last evaluations of a training on digits. Each rule has the "
        "learning rate that a search without an attack found best, by factors of 3, widened until the best "
        "lies inside: who trains does not know the attack.",
        "Rules that are told how many may be hostile are told two. Hostile workers see what the honest ones "
        "send. Those of the tuned attacks try eight strengths on the rule itself, from an empty state, and "
        "take that which moves its result farthest from the honest mean.",
        "A silent worker sends zeros. Contributions of wrong shapes are in `tests/aggregate`.",
    )
    return Section("To keep in mind", words=words)
