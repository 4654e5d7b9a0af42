"""Goals, tables and plots of the experiment on SAEF. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from tweed.report import charts
from tweed.report.comparison import Goal, goals, in_points, missing, of_points, of_ratios, rule, share, spread
from tweed.report.notes import Line, differences, mean_curve, values, where
from tweed.report.plots import svg
from tweed.report.study import Plot, Section, Study, Table
from tweed.systems.harness.simulated_training import FAR, POINT
from tweed.systems.saef.contenders import APART, DENSE, EARLY, EF, EXACT, SAEF, TWINS

#: The day since when the goals stand.
FIXED = "2026-11-23"
#: Accuracy of SAEF may be below that of dense training by so many points.
POINTS = 0.2

WORDS = (
    "Mismatch is the length of the difference between the gradient at a worker's point and that at the mean "
    "of where workers would stand with the residuals sent, beside the length of the latter; over 256 "
    "samples.",
    "Bytes are those of packets that were packed, with indices. In the paper's count, values alone, 10 % is "
    "as much as 5 % and a dense average of errors every 20 steps. What comes back to workers is the exact "
    "sum of what all sent; compressing that too is a setting of the compressor that was not tried here.",
    "Every side trains at its own best learning rate, dense training too: searched with a seed that is not "
    "judged and with as many steps, by factors of 3, widened until the best lies inside. By accuracy; where "
    "data differ, by test loss. For the mismatch all train at the rate that is best for error feedback.",
    rule(),
    "Training loss is that at the points where gradients are taken; accuracy that of the model.",
    "No network takes part: workers are virtual, and run the code that runs live.",
)


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    lead = "Error feedback takes gradients where the model is, SAEF where it would be with the residual sent."
    return Study("SAEF: a step ahead by the residual", lead, sections(lines))


def sections(lines: Sequence[Line]) -> list[Section]:
    """Goals, mismatch, equal bytes, data that differ."""
    apart = where(lines, kind="mismatch")
    budget, stall = (where(lines, kind="training", part=part) for part in ("budget", "stall"))
    found = [*_near(apart), *_equal(budget), *_repaired(stall)]
    parts = [Section("Goals", tables=[goals(found, fixed=FIXED)])]
    parts += [_mismatch(apart)] if apart else []
    parts += [_budget(budget)] if budget else []
    parts += [_stall(stall)] if stall else []
    return [*parts, Section("To keep in mind", words=WORDS)]


def _near(apart: Sequence[Line]) -> Iterator[Goal]:
    goal = "errors averaged every step: all gradients are taken at the point that analysis follows"
    if exact := where(apart, method=EXACT):
        most = max(max(line["apart"]) for line in exact)
        yield goal, f"mismatch at most {most:.1e}", most < 1e-3
    else:
        yield missing(goal)
    for one, (other, *_) in TWINS.items():
        goal = f"mismatch of {one} over that of {other} in the first fifth of training: > 1"
        mine, theirs = (
            [_early(line["apart"]) for line in where(apart, method=label)] for label in (other, one)
        )
        yield of_ratios(goal, _ratios(theirs, mine), 1.0)


def _early(apart: Sequence[float]) -> float:
    return statistics.fmean(apart[: max(1, len(apart) // 5)])


def _ratios(parts: Sequence[float], wholes: Sequence[float]) -> list[float]:
    """The ratios of parts to wholes of the same seed, in the order of seeds."""
    return [part / whole for part, whole in zip(parts, wholes, strict=False)]


def _equal(budget: Sequence[Line]) -> Iterator[Goal]:
    ef, saef, dense = (where(budget, method=label) for label in (EF, SAEF, DENSE))
    goal = "values sent by SAEF, top 5 % and P = 20, as many as by EF, top 10 %, within 1 %"
    if ef and saef:
        mine, theirs = _values(saef), _values(ef)
        yield goal, f"{mine:.2%} against {theirs:.2%} of all", abs(mine - theirs) <= 0.01 * theirs
    yield of_points("accuracy of SAEF at least that of EF", differences(saef, ef), 0.0)
    yield of_points(f"accuracy of SAEF within {POINTS} points of dense", differences(saef, dense), -POINTS)
    goal = "training loss of EF over that of SAEF, mean over training: > 1"
    ours, others = ([statistics.fmean(line["losses"] or [FAR]) for line in side] for side in (saef, ef))
    yield of_ratios(goal, _ratios(others, ours), 1.0)


def _values(lines: Sequence[Line]) -> float:
    """Share of values that were sent, without indices: of an entry's 8 bytes 4 are value."""
    entries = statistics.fmean(line["up_share"] for line in lines)
    averaged = 1 / 20 if lines[0]["method"] == SAEF else 0.0
    return (entries - averaged) / 2 + averaged


def _repaired(stall: Sequence[Line]) -> Iterator[Goal]:
    for partition in values(stall, "partition") or ("data that differ",):
        mine = where(stall, partition=partition)
        early, late = (
            {a: at(where(mine, fraction=a)) for a in values(mine, "fraction")} for at in (_soon, _end)
        )
        found = (
            f"{partition}: test loss of EF over that of a whole step ahead, step {2 * EARLY}: > 1",
            f"{partition}: test loss of a whole step ahead over that of EF, at the end: > 1",
            f"{partition}: test loss of the better of both over that of a fraction between, at the end: > 1",
        )
        between = [losses for fraction, losses in late.items() if 0 < fraction < 1]
        if not between or not {0.0, 1.0} <= set(late):
            yield from map(missing, found)
            continue
        yield of_ratios(found[0], _ratios(early[0.0], early[1.0]), 1.0)
        yield of_ratios(found[1], _ratios(late[1.0], late[0.0]), 1.0)
        best = (min(losses, key=statistics.fmean) for losses in ((late[0.0], late[1.0]), between))
        yield of_ratios(found[2], _ratios(*best), 1.0)


def _soon(lines: Sequence[Line]) -> list[float]:
    """Test loss at the second evaluation, by seed."""
    return [line["curve"][1][1] if len(line["curve"]) > 1 else FAR for line in lines]


def _end(lines: Sequence[Line]) -> list[float]:
    """Test loss at the end, by seed."""
    return [FAR if line["test_loss"] is None else line["test_loss"] for line in lines]


def _mismatch(apart: Sequence[Line]) -> Section:
    points, rows = {}, []
    for label in values(apart, "method"):
        mine = where(apart, method=label)
        found = mean_curve(mine, "apart")
        points[label] = [(float(APART * (at + 1)), value) for at, value in enumerate(found)]
        cells = [f"{found[0]:.3g}", f"{statistics.fmean(found):.3g}", f"{mine[0]['lr']:g}", str(len(mine))]
        rows.append([label, *cells])
    figure = charts.curves({"": points}, ("step", "mismatch, relative"))
    table = Table("Mismatch", ["", f"at step {APART}", "mean over training", "lr", "seeds"], rows)
    plot = Plot("mismatch", "How far gradients are taken from the point that analysis follows", svg(figure))
    return Section("Mismatch", plots=[plot], tables=[table])


def _budget(budget: Sequence[Line]) -> Section:
    rows, panel = [], {}
    for label in values(budget, "method"):
        mine = where(budget, method=label)
        accuracy = spread([100 * line["accuracy"] for line in mine])
        apart = differences(mine, where(budget, method=DENSE))
        cells = [f"{mine[0]['lr']:g}", str(len(mine)), accuracy, in_points(apart) if label != DENSE else "–"]
        rows.append([label, *cells, *(share(mine, key) for key in ("up_share", "down_share"))])
        panel[label] = [(POINT * (at + 1.0), loss) for at, loss in enumerate(mean_curve(mine, "losses"))]
    head = ["method", "lr", "seeds", "accuracy (%)", "against dense"]
    head += ["sent, of dense bytes", "received, of dense bytes"]
    figure = charts.curves({"": panel}, ("step", "training loss"))
    plot = Plot("budget", "Training loss at equal bytes", svg(figure))
    return Section("Equal bytes", plots=[plot], tables=[Table("Final accuracy and bytes", head, rows)])


def _stall(stall: Sequence[Line]) -> Section:
    rows = []
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for partition in values(stall, "partition"):
        panels[partition] = {}
        of_partition = where(stall, partition=partition)
        for fraction in values(of_partition, "fraction"):
            mine = where(of_partition, fraction=fraction)
            early, late = statistics.fmean(_soon(mine)), statistics.fmean(_end(mine))
            panels[partition][f"a = {fraction:g}"] = [*_curve(mine), (float(mine[0]["steps"]), late)]
            reached = statistics.fmean(line["accuracy"] for line in mine)
            ends = [f"{early:.3f}", f"{late:.3f}", f"{reached:.1%}", f"{mine[0]['lr']:g}"]
            rows.append([f"{partition}, a = {fraction:g}", *ends, str(len(mine))])
    figure = charts.curves(panels, ("step", "test loss of the average model"), log_y=True)
    words = (
        "Digits over 10 workers, sorted by label or dealt by a Dirichlet distribution; rounds of five local "
        "steps, top 1 %. a: the fraction that is stepped ahead; 0 is error feedback, 1 SAEF, between them "
        "SA-PEF.",
    )
    head = ["", f"test loss at step {2 * EARLY}", "at the end", "accuracy", "lr", "seeds"]
    plot = Plot("stall", "Test loss by fraction, where data differ between workers", svg(figure))
    return Section("Data that differ", words=words, plots=[plot], tables=[Table("", head, rows)])


def _curve(lines: Sequence[Line]) -> Iterator[tuple[float, float]]:
    """Steps and test loss, in the mean over seeds, as far as all of them reach."""
    for points in zip(*(line["curve"] for line in lines), strict=False):
        yield float(points[0][0]), statistics.fmean(loss for _, loss, _ in points)
