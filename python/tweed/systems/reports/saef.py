"""Goals, tables and plots of the experiment on SAEF. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from tweed.experiments.notes import Line, best_lr, differences, mean_curve, values, where
from tweed.experiments.simulated_training import POINT
from tweed.report import charts
from tweed.report.comparison import Goal, goals, missing, of_points, share, spread
from tweed.report.plots import svg
from tweed.report.study import Plot, Section, Table

DENSE, EF, SAEF = "dense", "EF, top 10 %", "SAEF, top 5 %, P = 20"
EXACT = "SAEF, top 1 %, P = 1"
_TWINS = (("EF, top 1 %", "SAEF, top 1 %, P = 20"), ("EF, sign", "SAEF, sign, P = 20"))
#: Steps between two measurements of the mismatch: at every age of an average of errors over 20 steps.
APART = 7
#: Which evaluation counts as early.
_EARLY = 2

WORDS = (
    "Mismatch is the length of the difference between the gradient at a worker's point and that at the mean "
    "of where workers would stand with the residuals sent, beside the length of the latter; over 256 "
    "samples.",
    "Bytes are those of packets that were packed, with indices. In the paper's count, values alone, 10 % is "
    "as much as 5 % and a dense average of errors every 20 steps. What comes back to workers is the exact "
    "sum of what all sent; compressing that too is a setting of the compressor that was not tried here.",
    "Training loss is that at the points where gradients are taken; accuracy that of the model.",
    "No network takes part: workers are virtual, and run the code that runs live.",
)


def sections(lines: Sequence[Line]) -> list[Section]:
    """Goals, mismatch, equal bytes, data that differ."""
    apart = {line["method"]: line["apart"] for line in where(lines, kind="mismatch")}
    tried = where(lines, kind="budget")
    best = {label: best_lr(tried, method=label, seed=0) for label in values(tried, "method")}
    budget = [line for line in tried if line["lr"] == best[line["method"]]]
    stall = where(lines, kind="stall")
    parts = [Section("Goals", tables=[goals([*_near(apart), *_equal(budget), *_repaired(stall)])])]
    parts += [_mismatch(apart)] if apart else []
    parts += [_budget(budget)] if budget else []
    parts += [_stall(stall)] if stall else []
    return [*parts, Section("To keep in mind", words=WORDS)]


def _near(apart: Mapping[str, Sequence[float]]) -> Iterator[Goal]:
    goal = "errors averaged every step: all gradients are taken at the point that analysis follows"
    if EXACT in apart:
        yield goal, f"mismatch at most {max(apart[EXACT]):.1e}", max(apart[EXACT]) < 1e-3
    else:
        yield missing(goal)
    for one, other in _TWINS:
        goal = f"mismatch of {other} below that of {one} in the first fifth of training"
        if one not in apart or other not in apart:
            yield missing(goal)
            continue
        early = max(1, len(apart[one]) // 5)
        mine, theirs = statistics.fmean(apart[other][:early]), statistics.fmean(apart[one][:early])
        yield goal, f"{mine:.3g} against {theirs:.3g}", mine < theirs


def _equal(budget: Sequence[Line]) -> Iterator[Goal]:
    ef, saef, dense = (where(budget, method=label) for label in (EF, SAEF, DENSE))
    goal = "values sent by SAEF, top 5 % and P = 20, as many as by EF, top 10 %, within 1 %"
    if ef and saef:
        mine, theirs = _values(saef), _values(ef)
        yield goal, f"{mine:.2%} against {theirs:.2%} of all", abs(mine - theirs) <= 0.01 * theirs
    yield of_points("accuracy of SAEF at least that of EF", differences(saef, ef), 0.0)
    yield of_points("accuracy of SAEF within 0.2 points of dense", differences(saef, dense), -0.2)
    if ef and saef:
        ours, others = mean_curve(saef, "losses"), mean_curve(ef, "losses")
        below = sum(our < other for our, other in zip(ours, others, strict=True))
        goal = "training loss of SAEF below that of EF all along"
        yield goal, f"at {below} of {len(others)} points", below == len(others)


def _values(lines: Sequence[Line]) -> float:
    """Share of values that were sent, without indices: of an entry's 8 bytes 4 are value."""
    entries = statistics.fmean(line["up_share"] for line in lines)
    averaged = 1 / 20 if lines[0]["method"] == SAEF else 0.0
    return (entries - averaged) / 2 + averaged


def _repaired(stall: Sequence[Line]) -> Iterator[Goal]:
    for partition in values(stall, "partition") or ("data that differ",):
        curves = _curves(where(stall, partition=partition))
        early, late = ({fraction: curve[at] for fraction, curve in curves.items()} for at in (_EARLY, -1))
        found = (
            f"{partition}: a whole step ahead is ahead of error feedback at step {50 * _EARLY}",
            f"{partition}: a whole step ahead ends behind error feedback",
            f"{partition}: a fraction between 0 and 1 ends below both",
        )
        between = [loss for fraction, loss in late.items() if 0 < fraction < 1]
        if not between or not {0.0, 1.0} <= set(late):
            yield from map(missing, found)
            continue
        words = [f"test loss {losses[1.0]:.3f} against {losses[0.0]:.3f}" for losses in (early, late)]
        yield found[0], words[0], early[1.0] < early[0.0]
        yield found[1], words[1], late[1.0] > late[0.0]
        yield found[2], f"{min(between):.3f} at best", min(between) < min(late[0.0], late[1.0])


def _curves(stall: Sequence[Line]) -> dict[float, list[float]]:
    """Test loss over training by fraction, in the mean over seeds."""
    fractions = sorted(values(stall, "fraction"))
    return {fraction: mean_curve(where(stall, fraction=fraction), "curve") for fraction in fractions}


def _mismatch(apart: Mapping[str, Sequence[float]]) -> Section:
    points = {
        label: [(float(APART * (at + 1)), value) for at, value in enumerate(found)]
        for label, found in apart.items()
    }
    figure = charts.curves({"": points}, ("step", "mismatch, relative"))
    rows = [[label, f"{found[0]:.3g}", f"{statistics.fmean(found):.3g}"] for label, found in apart.items()]
    table = Table("Mismatch", ["", f"at step {APART}", "mean over training"], rows)
    plot = Plot("mismatch", "How far gradients are taken from the point that analysis follows", svg(figure))
    return Section("Mismatch", plots=[plot], tables=[table])


def _budget(budget: Sequence[Line]) -> Section:
    rows, panel = [], {}
    for label in values(budget, "method"):
        mine = where(budget, method=label)
        accuracy = spread([100 * line["accuracy"] for line in mine])
        shares = (share(mine, key) for key in ("up_share", "down_share"))
        rows.append([label, f"{mine[0]['lr']:g}", str(len(mine)), accuracy, *shares])
        panel[label] = [(POINT * (at + 1.0), loss) for at, loss in enumerate(mean_curve(mine, "losses"))]
    head = ["method", "lr", "seeds", "accuracy (%)", "sent, of dense bytes", "received, of dense bytes"]
    figure = charts.curves({"": panel}, ("step", "training loss"))
    plot = Plot("budget", "Training loss at equal bytes", svg(figure))
    return Section("Equal bytes", plots=[plot], tables=[Table("Final accuracy and bytes", head, rows)])


def _stall(stall: Sequence[Line]) -> Section:
    rows = []
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for partition in values(stall, "partition"):
        panels[partition] = {}
        of_partition = where(stall, partition=partition)
        for fraction, curve in _curves(of_partition).items():
            reached = [line["accuracy"] for line in where(of_partition, fraction=fraction)]
            panels[partition][f"a = {fraction:g}"] = [(50.0 * at, loss) for at, loss in enumerate(curve)]
            ends = [f"{curve[_EARLY]:.3f}", f"{curve[-1]:.3f}", f"{statistics.fmean(reached):.1%}"]
            rows.append([f"{partition}, a = {fraction:g}", *ends, str(len(reached))])
    figure = charts.curves(panels, ("step", "test loss of the average model"), log_y=True)
    words = (
        "Digits over 10 workers, sorted by label or dealt by a Dirichlet distribution; rounds of five local "
        "steps, top 1 %. a: the fraction that is stepped ahead; 0 is error feedback, 1 SAEF, between them "
        "SA-PEF.",
    )
    head = ["", f"test loss at step {50 * _EARLY}", "at the end", "accuracy", "seeds"]
    plot = Plot("stall", "Test loss by fraction, where data differ between workers", svg(figure))
    return Section("Data that differ", words=words, plots=[plot], tables=[Table("", head, rows)])
