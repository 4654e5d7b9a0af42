"""Goals and tables of the experiment on Zeno. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from tweed.report.comparison import Goal, at_most, goals, judge, missing, of_points, rule, spread
from tweed.report.notes import Line, differences, mean, values, where
from tweed.report.study import Section, Study, Table
from tweed.systems.zeno.contenders import CLEAN

#: The day since when the goals stand.
FIXED = "2026-11-22"
#: Accuracy below which training has failed, as a share of that of clean training.
FAILED = 0.7


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    runs = where(lines, kind="training")
    parts = [Section("Goals", tables=[goals(_goals(runs), fixed=FIXED)])]
    for mode in values(runs, "mode"):
        parts.append(_accuracies(where(runs, mode=mode), mode))
    if alone := where(runs, mode="one by one"):
        parts.append(_verdicts(alone))
    lead = "Most workers are hostile, and the hub trusts 64 samples: who still learns?"
    return Study("Zeno: believed by what they do to the loss", lead, [*parts, _words()])


def _goals(runs: Sequence[Line]) -> Iterator[Goal]:
    step, alone = (where(runs, mode=mode) for mode in ("in step", "one by one"))
    clean = where(step, rule="mean", attack=CLEAN)
    for attack in ("sign", "label", "noise"):
        for name in ("mean", "median", "Krum"):
            yield _fails(where(step, rule=name, attack=attack), clean, f"in step, {attack}: {name} fails")
        for name, points in (("Zeno", 3.0), ("Zeno, momentum", 2.0)):
            mine = where(step, rule=name, attack=attack)
            base = where(step, rule="mean, momentum", attack=CLEAN) if name != "Zeno" else clean
            goal = f"in step, {attack}: {name} within {points:g} points of the mean without an attack"
            yield of_points(goal, differences(mine, base), -points)
    clean, flips = where(alone, rule="mean", attack=CLEAN), where(alone, attack="sign, tenfold")
    yield _fails(where(flips, rule="mean"), clean, "one by one, tenfold flips: without a rule it fails")
    for name, points in (("Zeno++", 6.0), ("Zeno++, record", 3.0)):
        goal = f"one by one, tenfold flips: {name} within {points:g} points of clean training"
        yield of_points(goal, differences(where(flips, rule=name), clean), -points)
    for key, what in (("refused", "honest ones refused"), ("taken", "hostile ones taken")):
        shares = [line[key] for line in where(flips, rule="Zeno++, record")]
        goal = f"one by one, tenfold flips: Zeno++, record: below 10 % of {what}"
        below = [0.1 - share for share in shares]
        yield (goal, f"{fmean(shares):.1%}", judge(below, 0.0)) if shares else missing(goal)


def _fails(mine: Sequence[Line], clean: Sequence[Line], goal: str) -> Goal:
    base = {line["seed"]: line["accuracy"] for line in clean}
    ratios = [line["accuracy"] / base[line["seed"]] for line in mine if line["seed"] in base]
    return at_most(goal, ratios, FAILED)


def _accuracies(runs: Sequence[Line], mode: str) -> Section:
    attacks = values(runs, "attack")
    rows = []
    for name in values(runs, "rule"):
        cells = [where(runs, rule=name, attack=attack) for attack in attacks]
        rows.append([name, *(_cell(cell) for cell in cells)])
    table = Table("Accuracy in percent, and the learning rate", ["", *attacks], rows)
    return Section(f"What is learned, {mode}", tables=[table])


def _cell(lines: Sequence[Line]) -> str:
    if not lines:
        return "–"
    return spread([100 * line["accuracy"] for line in lines], 1, f", lr {lines[0]['lr']:g}")


def _verdicts(runs: Sequence[Line]) -> Section:
    rows = []
    for attack in values(runs, "attack"):
        for name in values(runs, "rule"):
            mine = where(runs, rule=name, attack=attack)
            shares = [f"{mean(mine, key) or 0.0:.1%}" for key in ("refused", "taken")]
            rows.append([f"{attack}: {name}", *shares, f"{mean(mine, 'delay') or 0.0:.1f}"])
    head = ["", "honest ones refused", "hostile ones taken", "mean delay in commits"]
    return Section("False verdicts, one by one", tables=[Table("Shares of contributions", head, rows)])


def _words() -> Section:
    words = (
        "Each pair of rule and attack has the learning rate that a search with a seed of its own found best, "
        "by factors of 3, widened until the best lies inside.",
        rule(),
        f"A rule fails where it ends below {FAILED:g} of the mean's accuracy without an attack.",
        "Zeno's rho is 0: lengths cost nothing. Zeno drops 12 of 20 without an attack, too. Noise is another "
        "for each seed.",
        "Hostile workers see what honest ones sent last: for this commit, or for the one before.",
        "Krum cannot hold against a majority: it refuses 12 of 20, and is told of 9. ALIE is 1.5 honest "
        "standard deviations from the honest mean; the paper's formula has no answer where the hostile are "
        "most.",
        "Trusted samples are not those of training, nor those that accuracy is measured on. Zeno draws 64 "
        "for each commit, Zeno++ for each ten contributions, FLTrust for each.",
        "ZenoPS, with several validators and noise on workers, has a page of its own.",
    )
    return Section("To keep in mind", words=words)
