"""Goals and tables of the experiment on fixed points. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from tweed.report import charts
from tweed.report.comparison import Goal, goals, missing, number
from tweed.report.notes import Line, find, values, where
from tweed.report.plots import svg
from tweed.report.study import Plot, Section, Study, Table
from tweed.systems.fixed_points.contenders import AS_PUBLISHED, RATES, SIZES

#: The day since when the goals stand.
FIXED = "2026-11-28"
#: How the gradient is found.
WAYS = {"plain, equations": "equations, as in the paper's code", "plain": "the gradient by Anderson's mixing"}


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    parts = [Section("Goals", tables=[goals(_goals(lines), fixed=FIXED)])]
    parts += [_pictures(lines), _linear(lines), _times(lines), _words()]
    return Study("Fixed points", "Rules by which the weights of a network at rest learn.", parts)


def _goals(lines: Sequence[Line]) -> Iterator[Goal]:
    yield _accuracy(lines, "linearised", "at least 85 %", 0.85)
    yield _accuracy(lines, "plain", "at most 70 %, at its best rate", 0.70)
    yield _accuracy(lines, AS_PUBLISHED, "at least 85 %", 0.85)
    for rule in ("linearised", AS_PUBLISHED):
        goal = f"the {rule}: no eigenvalue's real part goes past 1"
        radii = [line["eigenvalue"] for line in where(lines, kind="pictures", rule=rule)]
        yield (goal, f"at most {max(radii):.2f}", max(radii) < 1) if radii else missing(goal)
    for size, _ in SIZES:
        for rule in ("plain, equations", "plain"):
            ratio = _quicker(lines, size, rule)
            goal = f"N = {size}: a step at least 1.5× as quick as {WAYS[rule]}"
            yield (goal, f"{ratio:.2f}×", ratio >= 1.5) if ratio else missing(goal)
    goal = "linear task: both rules reach the noise at a rate at which the gradient does not"
    reached = {
        rule: {line["lr"] for line in where(lines, kind="linear", rule=rule) if line["last"] <= 1}
        for rule in ("plain", "linearised", "reparameterised")
    }
    only = reached["linearised"] & reached["reparameterised"] - reached["plain"]
    words = f"at {', '.join(f'{rate:g}' for rate in sorted(only))}" if only else "at none"
    yield (goal, words, bool(only)) if where(lines, kind="linear") else missing(goal)


def _accuracy(lines: Sequence[Line], rule: str, words: str, bound: float) -> Goal:
    """The linearised rule is to be above its bound, the gradient below, in all seeds."""
    goal = f"MNIST, three epochs: the {'gradient' if rule == 'plain' else rule} {words}"
    found = [line["accuracy"] for line in where(lines, kind="pictures", rule=rule)]
    if not found:
        return missing(goal)
    is_met = max(found) <= bound if rule == "plain" else min(found) >= bound
    return goal, f"{fmean(found):.1%} ({min(found):.1%} to {max(found):.1%}; {len(found)} seeds)", is_met


def _quicker(lines: Sequence[Line], size: int, rule: str) -> float | None:
    """How many times as long a step of this rule takes as one of the linearised rule."""
    plain, linearised = (find(lines, kind="times", size=size, rule=key) for key in (rule, "linearised"))
    return plain["seconds"] / linearised["seconds"] if plain and linearised else None


def _pictures(lines: Sequence[Line]) -> Section:
    mine = where(lines, kind="pictures")
    rows, shown = [], {}
    for rule in values(mine, "rule"):
        found = where(mine, rule=rule)
        peak, last = (fmean(line[key] for line in found) for key in ("peak", "accuracy"))
        radius = max((line["eigenvalue"] for line in found if line["eigenvalue"] is not None), default=None)
        tried = where(lines, kind="search", side=f"pictures, {rule}")
        scores = ", ".join(
            f"{line['lr']:g}: {'–' if line['score'] is None else format(line['score'], '.1%')}"
            for line in sorted(tried, key=lambda line: line["lr"])
        )
        rows.append([rule, f"{found[0]['lr']:g}", f"{last:.1%}", f"{peak:.1%}", number(radius), scores])
        shown[rule] = [(20.0 * (place + 1), share) for place, share in enumerate(found[0]["curve"])]
    head = [
        "rule",
        "best rate",
        "accuracy",
        "at its peak",
        "largest eigenvalue",
        "all rates, with another seed",
    ]
    plots = []
    if shown:
        figure = charts.curves({"": shown}, ("step", "test accuracy"))
        plots.append(Plot("pictures", "What rules learn, one seed", svg(figure)))
    return Section("Pictures of digits", plots=plots, tables=[Table("", head, rows)])


def _linear(lines: Sequence[Line]) -> Section:
    mine = where(lines, kind="linear")
    rows = [
        [rule, *(_last(find(mine, rule=rule, lr=rate)) for rate in RATES)] for rule in values(mine, "rule")
    ]
    title = "Loss over that of the noise after the last step, by learning rate"
    return Section("Linear task", tables=[Table(title, ["rule", *(f"{rate:g}" for rate in RATES)], rows)])


def _last(line: Line | None) -> str:
    if line is None:
        return "–"
    return number(line["last"]) if line["last"] < 1e6 else "diverged"


def _times(lines: Sequence[Line]) -> Section:
    rows = [
        [f"{line['size']:,}", f"{line['batch']}", line["rule"], f"{1000 * line['seconds']:,.0f}"]
        for line in where(lines, kind="times")
    ]
    return Section("Steps", tables=[Table("", ["N", "batch", "rule", "step (ms)"], rows)])


def _words() -> Section:
    words = (
        "Pictures: 300 rates (tanh) between fixed random weights; the recurrent ones learn, by plain SGD "
        "with batches of 512, 354 steps. Rates are followed for five time constants in 50 steps of Euler's, "
        "whether they rest or not, as the paper's code does in 500.",
        "Each rule trains at its own best rate, searched by factors of 2.5 with a seed that is not judged; "
        "the linearised one also at the rate that was best in the paper. A training in which rates grow "
        "without bound counts as 0 %. Accuracy is of all test samples at the end, of every fifth before.",
        "The gradient was tested on the first 2,000 test samples alone, which are harder ones: there the "
        "linearised rule had 85.1 % at its best rate, 0.625. It was not trained again: its steps are long.",
        "Linear task: 200 rates, 100 samples, targets of another linear network with noise; all samples in "
        "each of 1,000 steps. Rates rest where a solver of equations says. Loss below 1 has learned noise.",
        "Steps are timed in turns on one thread, with the forward pass, which is the same for all rules. The "
        "gradient needs a solution of N equations for each sample: by elimination, as in the paper, or by "
        "Anderson's mixing, as equilibrium models do it; trainings have the latter.",
        "The paper's code has 65.1 % for the gradient, 87.1 % for the linearised rule and 82.5 % for its "
        "variant at the end of training, one seed each.",
    )
    return Section("To keep in mind", words=words)
