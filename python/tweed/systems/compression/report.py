"""Goals, tables and plots of the comparison of compressors, memories and cadences. Pure."""

from __future__ import annotations

import operator
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tweed.report import charts
from tweed.report.comparison import Goal, goals, in_points, number, of_points, of_ratios, rule, times
from tweed.report.notes import Line, differences, find, values, where
from tweed.report.plots import STYLES, svg
from tweed.report.study import Plot, Section, Study, Table
from tweed.systems.compression.contenders import (
    AUTO,
    EVERY,
    FAR,
    FASTEST,
    FOUR,
    LADDER,
    LATER,
    LATER_TIMES,
    OFF,
    OFTEN,
    PEERS,
    TEXT,
    TEXT_PLACES,
)
from tweed.systems.harness.time_to_accuracy import (
    ALONE,
    DDP,
    gain,
    possible,
    quickest,
    ratios,
    rounds_s,
    step_s,
    steps_to,
    target,
    time_to,
    times_to,
    trainings,
)

#: The seed that trains over other links too.
SEEN = 0
HARM = 0.02
#: So many times as quick as DiLoCo where round trips are long, and since when that is a goal.
FAR_GAIN, LATER_FIXED = 2.0, "2026-11-28"
WORDS = {"10mbit": "10 Mbit/s", "100mbit": "100 Mbit/s", "1gbit": "1 Gbit/s"}
#: Of other pages.
ALL_WORDS = {**WORDS, FASTEST: "10 Gbit/s"}
FAR_WORDS = "100 Mbit/s, round trips of 40 ms"
_WORDS = {**ALL_WORDS, FAR: FAR_WORDS, TEXT_PLACES[0]: "10 Mbit/s, round trips of 40 ms"}


@dataclass(frozen=True, slots=True)
class Goals:
    """What is claimed.

    Attributes:
      fixed: the day since when, in ISO form.
      shares: of the possible gain over DDP, by rate.
      points: by which final accuracy may be below DDP's; times are compared to its accuracy and to that.
      sooner: than DDP at the slowest rate, so many times.
    """

    fixed: str
    shares: Mapping[str, float]
    points: float
    sooner: float = 10.0


#: Fixed before the first run: of the possible gain over DDP, so much at each rate; and final accuracy not
#: below DDP's by more than so many points.
GOALS = Goals("2026-11-23", {"10mbit": 0.8, "100mbit": 0.8, "1gbit": 0.9}, points=0.5)


def study(lines: Sequence[Line], wanted: Goals = GOALS) -> Study:
    """The report of the notes' lines."""
    lines, of_text = _by_task(lines)
    rates = [rate for rate in WORDS if find(lines, kind="step_times", rate=rate)]
    fixed = [*_verdicts(lines, rates, wanted, 0.0), *_harm(lines), *_formulas(lines)]
    added = goals(_verdicts(lines, rates, wanted, wanted.points), "goal, added after the run")
    parts = [Section("Goals", tables=[goals(fixed, fixed=wanted.fixed), added])]
    if rates:
        curves = _curves(lines, rates[0], wanted.points)
        plots = [Plot("time", "Accuracy over time at the slowest rate, seed 0", curves)]
        parts += [_times(lines, rates, 0.0, plots), _times(lines, rates, wanted.points), _parts(lines, rates)]
        parts += _later(lines, wanted)
    if any(line["kind"] == "training" for line in lines):
        parts += [_accuracies(lines, wanted.points), _bytes(lines)]
    parts += _on_text(of_text)
    parts += [_checked(lines), Section("To keep in mind", words=[*_words(lines)])]
    lead = "Four workers on slow links: compressors, memories and cadences beside DDP on Gloo."
    return Study("Send less, less often", lead, parts)


def _by_task(lines: Sequence[Line]) -> tuple[list[Line], list[Line]]:
    """The lines of the first task, and of the second, whose sides have the same names now."""
    first = [line for line in lines if not str(line.get("side")).startswith(TEXT)]
    second = [line for line in lines if str(line.get("side")).startswith(TEXT)]
    return first, [{**line, "side": line["side"].removeprefix(TEXT)} for line in second]


def _on_text(lines: Sequence[Line]) -> list[Section]:
    """What holds for the second task; nothing before it was measured."""
    rates = [rate for rate in TEXT_PLACES if find(lines, kind="step_times", rate=rate)]
    if not (rates and trainings(lines, DDP)):
        return []
    times_, learned = _times(lines, rates, 0.0), _accuracies(lines, GOALS.points)
    words = [
        "A transformer of 1.8 million parameters that predicts characters, with AdamW. Accuracy is the share "
        "of characters that are predicted right; which side keeps DDP's is another question here."
    ]
    return [
        Section("A second task: time to DDP's accuracy", [*words, *times_.words], tables=times_.tables),
        Section("A second task: what is learned", tables=learned.tables),
    ]


def _sides(lines: Sequence[Line]) -> list[str]:
    return values(where(lines, kind="training"), "side")


def _ours(lines: Sequence[Line]) -> list[str]:
    return [side for side in _sides(lines) if side not in PEERS]


def best(lines: Sequence[Line], rate: str, points: float = 0.0) -> str | None:
    """The side of ours that is first within so many points of the target, in the mean over seeds."""
    seconds = {side: time_to(lines, side, rate, points / 100) for side in _ours(lines)}
    reached = {side: time for side, time in seconds.items() if time is not None}
    return min(reached, key=lambda side: reached[side]) if reached else None


def _verdicts(lines: Sequence[Line], rates: Sequence[str], wanted: Goals, points: float) -> Iterator[Goal]:
    """Times to within so many points of the target, and what the sides that are best there end with."""
    for rate in rates:
        yield from _in_time(lines, rate, wanted, points)
    for side in dict.fromkeys(filter(None, (best(lines, rate, points) for rate in rates))):
        goal = f"{side}: final accuracy not below DDP's by more than {wanted.points} points"
        yield of_points(goal, _apart(lines, side), -wanted.points)


def _in_time(lines: Sequence[Line], rate: str, wanted: Goals, points: float) -> Iterator[Goal]:
    """The goals at one rate, to within so many points of the target."""
    place = f"{WORDS[rate]}, to within {points:g} points" if points else WORDS[rate]
    ours, most = quickest(lines, _ours(lines), rate, points / 100), possible(lines, rate)
    gains = ratios(times_to(lines, DDP, rate, points / 100), ours)
    more = f" of {number(most)}×: {best(lines, rate, points)}"
    goal = f"{place}: our best at least {wanted.shares[rate]:g} of the possible gain over DDP"
    yield of_ratios(goal, [got / most for got in gains] if most else [], wanted.shares[rate], more)
    if rate == "10mbit":
        goal = f"{place}: our best at least {wanted.sooner:g}× sooner than DDP"
        yield of_ratios(goal, gains, wanted.sooner)
    for peer in PEERS[1:]:
        if not trainings(lines, peer):
            continue
        goal, theirs = f"{place}: our best sooner than {peer}", times_to(lines, peer, rate, points / 100)
        if ours and not theirs:
            steps = _steps(lines, peer, target(lines, points / 100))
            yield goal, f"{peer} reaches the target: {steps}", None
        else:
            yield of_ratios(goal, ratios(theirs, ours), 1.0)


def _far(lines: Sequence[Line]) -> Iterator[Goal]:
    """Behind round trips: our quickest side of few values, step by step, beside DiLoCo of as short rounds."""
    if theirs := find(lines, kind="step_times", side=OFTEN, rate=FAR):
        timed = where(lines, kind="step_times", rate=FAR)
        ours = [line for line in timed if line["side"] in (FOUR, *LATER)]
        first = min(ours, key=lambda line: statistics.median(rounds_s(line)))
        gains = list(map(operator.truediv, rounds_s(theirs), rounds_s(first)))
        goal = f"round trips of 40 ms: a step at least {FAR_GAIN:g}× as quick as {OFTEN}'s"
        yield of_ratios(goal, gains, FAR_GAIN, f": {first['side']}")


def _later(lines: Sequence[Line], wanted: Goals) -> list[Section]:
    """Rounds that overlap, beside peers and what waits; nothing before they were timed."""
    timed = [{**line, "kind": "step_times"} for line in where(lines, kind=LATER_TIMES)]
    if not timed:
        return []
    sides, rates = values(timed, "side"), values(timed, "rate")
    lines = [*(line for line in where(lines, kind="training") if line["side"] in sides), *timed]
    near = [rate for rate in rates if rate in WORDS]
    verdicts = [*_verdicts(lines, near, wanted, wanted.points), *_far(lines)]
    rows = []
    for side in sides:
        each = [step_s(lines, side, rate) for rate in rates]
        steps = [number(None if one is None else 1000 * one) for one in each]
        gains = [gain(lines, side, rate, wanted.points / 100) if side != ALONE else None for rate in rates]
        sooner = ["–" if one is None else f"{one:.2f}×" for one in gains]
        cells = [cell for pair in zip(steps, sooner, strict=True) for cell in pair]
        rows.append([side, _reached(lines, side), *cells])
    head = ["", "accuracy", *(f"{_WORDS[rate]}: {what}" for rate in rates for what in ("ms/step", "sooner"))]
    words = [
        "Ranks take steps while an exchange is under way, where a delay stands in the name. These sides had "
        "turns of their own, with exchanges of two collectives: compare their times with each other alone. "
        f"Sooner: than DDP at an accuracy {wanted.points:g} points below what it ends with at its worst seed."
    ]
    tables = [goals(verdicts, fixed=LATER_FIXED), Table("", head, rows)]
    return [Section("Rounds that overlap", words, tables=tables)]


def _harm(lines: Sequence[Line]) -> Iterator[Goal]:
    """Compression that was turned off beside none, round by round."""
    off = find(lines, kind="step_times", side=OFF)
    plain = None if off is None else find(lines, kind="step_times", side=EVERY, rate=off["rate"])
    if off is None or plain is None:
        return
    ratios = list(map(operator.truediv, rounds_s(off), rounds_s(plain)))
    ratio = statistics.median(ratios)
    what = f"{ratio:.3f}× of {len(ratios)} pairs of rounds; it took {off['chosen']}"
    # It runs the plain run's code then: what lies beyond is the machine's noise, and no verdict.
    verdict = None if abs(ratio - 1) > HARM else True
    yield f"where auto turns compression off: within {HARM:.0%} of the plain run", what, verdict


def _formulas(lines: Sequence[Line]) -> Iterator[Goal]:
    """Bytes packed against the compressors' formulas: the side that is furthest off."""
    apart = {
        line["side"]: line["packed_bytes"] / line["formula_bytes"] - 1
        for line in where(lines, kind="training")
        if line.get("formula_bytes")
    }
    if apart:
        worst = max(apart, key=lambda side: abs(apart[side]))
        what = f"{apart[worst]:+.2%} ({worst}), of {len(apart)} sides"
        yield "bytes as the compressor's formula gives, within 1 %", what, abs(apart[worst]) <= 0.01


def _times(lines: Sequence[Line], rates: Sequence[str], points: float, plots: Sequence[Plot] = ()) -> Section:
    below = points / 100
    goal = target(lines, below)
    head = ["", "steps to it"]
    head += [f"{_WORDS[rate]}: {what}" for rate in rates for what in ("ms/step", "time (s)", "sooner")]
    rows = []
    for side in [*_sides(lines), ALONE]:
        cells = [_steps(lines, side, goal)]
        for rate in rates:
            each_s, got = step_s(lines, side, rate), gain(lines, side, rate, below)
            cells += [number(None if each_s is None else 1000 * each_s)]
            cells += [number(time_to(lines, side, rate, below)), "–" if got is None else f"{got:.2f}×"]
        rows.append([side, *cells])
    apart = f"{points:g} points below what" if points else "what"
    words = [f"The target is {goal:.2%}: {apart} DDP ends with at its worst seed."] if goal else []
    table = Table("", head, rows)
    if points:
        return Section(f"Time to {points:g} points below DDP's accuracy", words, tables=[table])
    words += [f"{_WORDS[rate]}: possible gain {number(possible(lines, rate))}×." for rate in rates]
    return Section("Time to DDP's accuracy", words, plots, [table])


def _steps(lines: Sequence[Line], side: str, goal: float | None) -> str:
    if goal is None or side == ALONE:
        return "–"
    steps = steps_to(lines, side, goal)
    reached = [count for count in steps.values() if count is not None]
    missed = f" ({len(reached)} of {len(steps)} seeds)" if len(reached) < len(steps) else ""
    return (f"{statistics.fmean(reached):.0f}" if reached else "never") + missed


def _curves(lines: Sequence[Line], rate: str, points: float) -> str:
    curves = {}
    for side in _featured(lines, points):
        if (each_s := step_s(lines, side, rate)) is not None:
            curve = trainings(lines, side)[0]["curve"]
            curves[side] = [(steps * each_s, 100 * accuracy) for steps, _, accuracy in curve]
    return svg(charts.over_time(curves, ("training time (s)", "test accuracy (%)")))


def _featured(lines: Sequence[Line], points: float) -> list[str]:
    """As many sides as a plot can show: the best at each rate, to the target and to so many points below it,
    the peers, and steps on the way."""
    first = [best(lines, rate, below) for below in (0.0, points) for rate in WORDS]
    wanted = dict.fromkeys([*filter(None, first), *PEERS, *LADDER])
    return [side for side in wanted if side in _sides(lines)][: len(STYLES)]


def _parts(lines: Sequence[Line], rates: Sequence[str]) -> Section:
    rows = []
    for before, side in pairwise((DDP, *LADDER)):
        sides = [(one, rate) for rate in rates for one in (before, DDP)]
        cells = [times(step_s(lines, one, rate), step_s(lines, side, rate)) for one, rate in sides]
        rows.append([side, _reached(lines, side), *cells])
    head = ["", "accuracy"]
    head += [f"{WORDS[rate]}: {what}" for rate in rates for what in ("this part", "all so far")]
    words = ["One part is added per row. Factors are of the time per step; what it costs stands before them."]
    return Section("Which part brought what", words, tables=[Table("", head, rows)])


def _reached(lines: Sequence[Line], side: str) -> str:
    found = [line["curve"][-1][2] for line in trainings(lines, side)]
    return f"{statistics.fmean(found):.2%}" if found else "–"


def _apart(lines: Sequence[Line], side: str) -> list[float]:
    """Points by which a side's final accuracy is above DDP's, by seed."""
    return differences(trainings(lines, side), trainings(lines, DDP), lambda line: line["curve"][-1][2])


def _accuracies(lines: Sequence[Line], margin: float) -> Section:
    rows, dots = [], {}
    for side in _sides(lines):
        found, apart = trainings(lines, side), _apart(lines, side)
        rate = f"{found[0]['lr']:g} ({found[0]['optimizer']})"
        against = in_points(apart) if apart and side != DDP else "–"
        rows.append([side, str(len(found)), _reached(lines, side), against, rate])
        if side != DDP and apart:
            dots[side] = apart
    plots = []
    if dots:
        figure = charts.differences(dots, "final accuracy against DDP, points (bar: mean)", margin)
        plots = [Plot("accuracy", "Final accuracy against DDP of the same seed", svg(figure))]
    head = ["", "seeds", "final accuracy", "against DDP (95 % interval)", "learning rate"]
    return Section("What is learned", plots=plots, tables=[Table("", head, rows)])


def _bytes(lines: Sequence[Line]) -> Section:
    theirs = _link_bytes(lines, DDP)
    rows = []
    for side in _sides(lines):
        first, link = trainings(lines, side)[0], _link_bytes(lines, side)
        counts = [first["packed_bytes"], first.get("formula_bytes"), link]
        kilobytes = ["–" if count is None else number(count / 1000) for count in counts]
        rows.append([side, *kilobytes, times(theirs, link)])
    head = ["", "packed (KB/step)", "formula (KB/step)", "over its link (KB/step)", "less than DDP"]
    words = [
        "Packed: what a rank gives to the network, mean over ranks. Over its link: what left the rank, with "
        "all headers, the replies to other ranks and acknowledgements."
    ]
    return Section("Bytes", words, tables=[Table("Per worker and step", head, rows)])


def _link_bytes(lines: Sequence[Line], side: str) -> float | None:
    """Per step, while steps were timed at the slowest rate; None if they were not."""
    timed = next((find(lines, kind="step_times", side=side, rate=rate) for rate in WORDS), None)
    return None if timed is None or not timed["steps"] else timed["link_bytes"] / sum(timed["steps"])


def _checked(lines: Sequence[Line]) -> Section:
    """Whole trainings behind links with one seed: what was computed, beside what was measured."""
    rows = []
    seen = where(lines, kind="training", seed=SEEN)
    shaped = [line for line in seen if line["rate"] in WORDS and line["side"] != AUTO]
    for line in shaped if target(lines) is not None else ():
        (steps, measured, reached), each_s = line["curve"][-1], step_s(lines, line["side"], line["rate"])
        base = {done: got for done, _, got in trainings(lines, line["side"])[0]["curve"]}
        cells = [str(steps), number(measured), number(None if each_s is None else each_s * steps)]
        cells += [f"{reached:.2%}", f"{100 * (reached - base[steps]):+.2f}" if steps in base else "–"]
        rows.append([f"{line['side']}, {WORDS[line['rate']]}", *cells])
    head = ["seed 0", "steps", "measured (s)", "computed (s)", "accuracy", "against no network"]
    words = ["Time per step of all sides in turns, times steps, beside the time that whole trainings took."]
    return Section("Computed beside measured", words, tables=[Table("", head, rows)])


def _words(lines: Sequence[Line]) -> Iterator[str]:
    yield (
        "Times to the target are computed: steps of whole trainings with no network between ranks, of each "
        "seed, times the seconds per step of all sides in turns at each rate, the middle of five rounds. "
        "What is learned does not depend on the link: the table above shows it with seed 0, and that the "
        f"product is what whole trainings take. “{AUTO}” chooses by the link: it trains at 1 Gbit/s."
    )
    yield (
        "The learning rate of each side, DDP's too, was searched with as many steps and a seed that is not "
        "judged, by factors of 2, widened until the best lies inside. It falls to zero along half a cosine."
    )
    yield rule()
    yield (
        "Ratios are of the same seed, their means geometric. “Our best” is picked for each seed by the "
        "others, so that what picks is not judged; the side that is named is the best over all. Seeds are "
        "the noise that the intervals know of; that of step times is not in them."
    )
    yield (
        "SparseLoCo settings: 16 local steps of AdamW, the largest 3 % in 2 bits, error feedback; not its "
        "decay of the residual, nor its outer optimizer. Both DiLoCo have the outer rate and momentum of "
        "the paper."
    )
    yield (
        "Where models differ by design between exchanges, their average is evaluated, and the time that "
        "making it takes at this rate is added once. Evaluations themselves are not timed."
    )
    for line in where(lines, kind="training"):
        if line.get("diverged"):
            done = line["curve"][-1][0]
            yield f"{line['side']} diverged with seed {line['seed']}, at {line['rate']}, after {done} steps."
