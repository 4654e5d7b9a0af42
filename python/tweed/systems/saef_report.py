"""The report of the experiment on SAEF. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from tweed.report import charts
from tweed.report.plots import svg
from tweed.report.study import Plot, Section, Table
from tweed.systems.base import Line
from tweed.systems.rehearsal import POINT

Row = list[str]
_DENSE, _EF, _SAEF = "dense", "EF, top 10 %", "SAEF, top 5 %, P = 20"
_TWINS = (("EF, top 1 %", "SAEF, top 1 %, P = 20"), ("EF, sign", "SAEF, sign, P = 20"))
_EXACT = "SAEF, top 1 %, P = 1"
#: Steps between two measurements of the mismatch: at every age of an average of errors over 20 steps.
APART = 7
#: Which evaluation counts as early.
_EARLY = 2

WORDS = (
    "Mismatch is the length of the difference between the gradient at a worker's point and that at the mean "
    "of where workers would stand had all been said, beside the length of the latter; over 256 samples.",
    "Bytes are those of packets that were packed, with indices. In the paper's count, values alone, 10 % is "
    "as much as 5 % and a dense average of errors every 20 steps. What comes back to workers is the exact "
    "sum of what all said; compressing that too is a setting of the compressor that was not tried here.",
    "Training loss is that at the points where gradients are taken; accuracy that of the model.",
    "No network takes part: workers are virtual, and walk the code that runs live.",
)


def best_rate(lines: Sequence[Line], label: str) -> float:
    """The learning rate with the highest accuracy for the first seed."""
    tried = [
        line for line in lines if line["kind"] == "budget" and line["method"] == label and line["seed"] == 0
    ]
    return float(max(tried, key=lambda line: line["accuracy"])["lr"])


def sections(lines: Sequence[Line]) -> list[Section]:
    """Goals, mismatch, equal bytes, data that differ."""
    apart = {line["method"]: line["apart"] for line in lines if line["kind"] == "mismatch"}
    budget = [
        line for line in lines if line["kind"] == "budget" and line["lr"] == best_rate(lines, line["method"])
    ]
    stall = [line for line in lines if line["kind"] == "stall"]
    goals = [*_near(apart), *_equal(budget), *_repaired(stall)]
    parts = [Section("Goals", tables=[Table("", ["goal", "measured", ""], goals)])]
    parts += [_mismatch(apart)] if apart else []
    parts += [_budget(budget)] if budget else []
    parts += [_stall(stall)] if stall else []
    return [*parts, Section("To keep in mind", words=WORDS)]


def _verdict(goal: str, said: str, met: bool) -> Row:
    return [goal, said, "met" if met else "missed"]


def _near(apart: dict[str, Sequence[float]]) -> Iterator[Row]:
    goal = "errors averaged every step: all gradients are taken at the point that analysis follows"
    if _EXACT in apart:
        yield _verdict(goal, f"mismatch at most {max(apart[_EXACT]):.1e}", max(apart[_EXACT]) < 1e-3)
    else:
        yield [goal, "–", "–"]
    for one, other in _TWINS:
        goal = f"mismatch of {other} below that of {one} in the first fifth of training"
        if one not in apart or other not in apart:
            yield [goal, "–", "–"]
            continue
        early = max(1, len(apart[one]) // 5)
        mine, theirs = statistics.fmean(apart[other][:early]), statistics.fmean(apart[one][:early])
        yield _verdict(goal, f"{mine:.3g} against {theirs:.3g}", mine < theirs)


def _equal(budget: Sequence[Line]) -> Iterator[Row]:
    ef, saef, dense = ([line for line in budget if line["method"] == label] for label in (_EF, _SAEF, _DENSE))
    goal = "values said by SAEF, top 5 % and P = 20, as many as by EF, top 10 %, within 1 %"
    if ef and saef:
        mine, theirs = _values(saef), _values(ef)
        yield _verdict(goal, f"{mine:.2%} against {theirs:.2%} of all", abs(mine - theirs) <= 0.01 * theirs)
    for goal, rivals, margin in (
        ("accuracy of SAEF at least that of EF", ef, 0.0),
        ("accuracy of SAEF within 0.2 points of dense", dense, 0.2),
    ):
        seeds = _differences(saef, rivals)
        if seeds:
            points = statistics.fmean(seeds)
            yield _verdict(goal, f"{points:+.2f} points over {len(seeds)} seeds", points >= -margin)
        else:
            yield [goal, "–", "–"]
    if ef and saef:
        mine_curve, their_curve = _curve(saef), _curve(ef)
        below = sum(mine < theirs for mine, theirs in zip(mine_curve, their_curve, strict=True))
        goal = "training loss of SAEF below that of EF all along"
        yield _verdict(goal, f"at {below} of {len(their_curve)} points", below == len(their_curve))


def _values(lines: Sequence[Line]) -> float:
    """Share of numbers whose values were said, without indices: of an entry's 8 bytes 4 are value."""
    entries = statistics.fmean(line["up_share"] for line in lines)
    averaged = 1 / 20 if lines[0]["method"] == _SAEF else 0.0
    return (entries - averaged) / 2 + averaged


def _differences(mine: Sequence[Line], theirs: Sequence[Line]) -> list[float]:
    base = {line["seed"]: line["accuracy"] for line in theirs}
    return [100 * (line["accuracy"] - base[line["seed"]]) for line in mine if line["seed"] in base]


def _curve(lines: Sequence[Line]) -> list[float]:
    return [statistics.fmean(losses) for losses in zip(*(line["losses"] for line in lines), strict=False)]


def _repaired(stall: Sequence[Line]) -> Iterator[Row]:
    for partition in dict.fromkeys(line["partition"] for line in stall) or ("data that differ",):
        mine = [line for line in stall if line["partition"] == partition]
        early, late = ({a: _loss(mine, a, at) for a in _fractions(mine)} for at in (_EARLY, -1))
        goals = (
            f"{partition}: a whole step ahead is ahead of error feedback at step {50 * _EARLY}",
            f"{partition}: a whole step ahead ends behind error feedback",
            f"{partition}: a fraction between 0 and 1 ends below both",
        )
        between = [loss for fraction, loss in late.items() if 0 < fraction < 1]
        if not between or not {0.0, 1.0} <= set(late):
            yield from ([goal, "–", "–"] for goal in goals)
            continue
        words = [f"test loss {losses[1.0]:.3f} against {losses[0.0]:.3f}" for losses in (early, late)]
        yield _verdict(goals[0], words[0], early[1.0] < early[0.0])
        yield _verdict(goals[1], words[1], late[1.0] > late[0.0])
        yield _verdict(goals[2], f"{min(between):.3f} at best", min(between) < min(late[0.0], late[1.0]))


def _fractions(stall: Sequence[Line]) -> list[float]:
    return sorted({line["fraction"] for line in stall})


def _loss(stall: Sequence[Line], fraction: float, at: int) -> float:
    return statistics.fmean(line["curve"][at] for line in stall if line["fraction"] == fraction)


def _mismatch(apart: dict[str, Sequence[float]]) -> Section:
    points = {
        label: [(float(APART * (place + 1)), value) for place, value in enumerate(values)]
        for label, values in apart.items()
    }
    figure = charts.curves({"": points}, ("step", "mismatch, relative"))
    rows = [[label, f"{values[0]:.3g}", f"{statistics.fmean(values):.3g}"] for label, values in apart.items()]
    table = Table("Mismatch", ["", f"at step {APART}", "mean over training"], rows)
    plot = Plot("mismatch", "How far gradients are taken from the point that analysis follows", svg(figure))
    return Section("Mismatch", plots=[plot], tables=[table])


def _budget(budget: Sequence[Line]) -> Section:
    rows, panel = [], {}
    for label in dict.fromkeys(line["method"] for line in budget):
        mine = [line for line in budget if line["method"] == label]
        reached = [100 * line["accuracy"] for line in mine]
        up, down = (statistics.fmean(line[key] for line in mine) for key in ("up_share", "down_share"))
        accuracy = f"{statistics.fmean(reached):.2f} (± {(max(reached) - min(reached)) / 2:.2f})"
        rows.append([label, f"{mine[0]['lr']:g}", str(len(mine)), accuracy, f"{up:.2%}", f"{down:.2%}"])
        panel[label] = [(POINT * (place + 1.0), loss) for place, loss in enumerate(_curve(mine))]
    head = ["method", "lr", "seeds", "accuracy (%)", "said, of dense bytes", "told, of dense bytes"]
    plot = Plot(
        "budget", "Training loss at equal bytes", svg(charts.curves({"": panel}, ("step", "training loss")))
    )
    return Section("Equal bytes", plots=[plot], tables=[Table("Final accuracy and bytes", head, rows)])


def _stall(stall: Sequence[Line]) -> Section:
    rows = []
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for partition in dict.fromkeys(line["partition"] for line in stall):
        panels[partition] = {}
        of_partition = [line for line in stall if line["partition"] == partition]
        for fraction in _fractions(of_partition):
            mine = [line for line in of_partition if line["fraction"] == fraction]
            curve = [
                statistics.fmean(values) for values in zip(*(line["curve"] for line in mine), strict=True)
            ]
            panels[partition][f"a = {fraction:g}"] = [(50.0 * at, loss) for at, loss in enumerate(curve)]
            accuracy = statistics.fmean(line["accuracy"] for line in mine)
            ends = [f"{curve[_EARLY]:.3f}", f"{curve[-1]:.3f}", f"{accuracy:.1%}", str(len(mine))]
            rows.append([f"{partition}, a = {fraction:g}", *ends])
    figure = charts.curves(panels, ("step", "test loss of the average model"), log_y=True)
    words = (
        "Digits over 10 workers, sorted by label or dealt by a Dirichlet distribution; rounds of five local "
        "steps, top 1 %. a: the fraction that is stepped ahead; 0 is error feedback, 1 SAEF, between them "
        "SA-PEF.",
    )
    head = ["", f"test loss at step {50 * _EARLY}", "at the end", "accuracy", "seeds"]
    plot = Plot("stall", "Test loss by fraction, where data differ between workers", svg(figure))
    return Section("Data that differ", words=words, plots=[plot], tables=[Table("", head, rows)])
