"""Goals, tables and plots of the experiment on DCT. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tweed.report import charts
from tweed.report.comparison import Goal, goals, missing, of_points, rule, share, spread, with_range
from tweed.report.notes import Line, differences, mean, mean_curve, values, where
from tweed.report.plots import svg
from tweed.report.study import Plot, Section, Study, Table
from tweed.systems.dct.contenders import (
    CUT,
    DCT,
    DENSE,
    EACH,
    FROM_STEP,
    HELD,
    NO_MEMORY,
    ONE,
    PUBLISHED,
    SAMPLES,
    TENTH,
    WARM,
    WORKERS,
)
from tweed.systems.harness.simulated_training import POINT

#: The day since when the goals stand.
FIXED = "2026-11-23"
#: The same, of goals for cuts that choose from each sample.
FIXED_SAMPLES = "2026-11-28"
#: A difference in points that counts as none.
POINTS = 0.5
#: So many times the values asked for may be sent, from this step on.
CAP = 1.2
#: So many times fewer values and bytes: between workers, and between stages.
FEWER, FEWER_STAGES = 100, 20

WORDS = (
    "Accuracy is in the mean over seeds; ± half of the range. Each side has the learning rate that it is "
    "best at, found with one seed, of digits with three, that are not used again; grids are widened until "
    "the best lies inside.",
    "Fashion-MNIST is trained for an epoch, 1,875 steps of 32 samples.",
    rule(),
    "Bytes are those of packets that were packed, with headers, places and scales. Values are counted as "
    "they are encoded, and are compared with 1 % of the model.",
    "Replies are exact, and are not part of what is sent: the column of what is received has them.",
    "DCT sends values in 8 bits; what rounding leaves is fed back. With a life span, and in top-k, values "
    "are float32, and places 32 bits; with a life span, tensors of fewer than 256 values are sent in full.",
    "Two stages: what is not sent is lost, as published. Accuracy is that of the model with the "
    "cut, as it was trained; and that of its stages joined, with all activations.",
    "Encoding was timed on one thread over Gaussian values, with error feedback and the native kernels, and "
    "the fastest of nine times counts, of twenty where a controller holds the threshold.",
    "No network takes part in the trainings: workers and stages are virtual, and run what runs live.",
)


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    trainings = where(lines, kind="training", half="data")
    stages = where(lines, kind="training", half="model")
    encodings = {line["life_span"]: line for line in where(lines, kind="encoding")}
    found = [
        goal for task in values(trainings, "task") for goal in _quality(where(trainings, task=task), task)
    ]
    found += [goal for task in values(stages, "task") for goal in _cut(where(stages, task=task), task)]
    later = [goal for task in values(stages, "task") for goal in _samples(where(stages, task=task), task)]
    tables = [goals([*found, *_overhead(encodings)], fixed=FIXED)]
    tables += [goals(later, "goal, added after the first report", FIXED_SAMPLES)] if later else []
    parts = [Section("Goals", tables=tables)]
    parts += [_learned(trainings)] if trainings else []
    parts += [_crossed(stages)] if stages else []
    parts += [_encoding(encodings)] if encodings else []
    lead = f"{WORKERS} workers send the largest hundredth of their gradients; a threshold decides which."
    return Study(
        "DCT: thresholds on gradients and activations",
        lead,
        [*parts, Section("To keep in mind", words=WORDS)],
    )


def _quality(lines: Sequence[Line], task: str) -> Iterator[Goal]:
    sides = {label: where(lines, method=label) for label in (DENSE, DCT, PUBLISHED, EACH, NO_MEMORY)}
    for goal, mine, theirs, least in (
        (f"{task}: DCT within {POINTS} points of dense", DCT, DENSE, -POINTS),
        (f"{task}: as published, with a life span of 1,000, the same", PUBLISHED, DENSE, -POINTS),
        (f"{task}: DCT within {POINTS} points of top-k each step", DCT, EACH, -POINTS),
        (f"{task}: DCT ahead of DCT without error feedback by {POINTS} points", DCT, NO_MEMORY, POINTS),
    ):
        yield of_points(goal, differences(sides[mine], sides[theirs]), least)
    for label in (DCT, PUBLISHED):
        goal = f"{task}: {label} sends within {CAP}× of what was asked for from step {FROM_STEP} on"
        found = sides[label]
        if not found:
            yield missing(goal)
            continue
        lowest, most = min(line["least"] for line in found), max(line["most"] for line in found)
        yield goal, f"{lowest:.2f}× to {most:.2f}×, of each step", most <= CAP and lowest >= 1 / CAP
    for label in (DCT, PUBLISHED):
        for what, key in (("values", "values"), ("bytes", "up_share")):
            part = mean(sides[label], key)
            if part is not None:
                met = round(1 / part, 6) >= FEWER
                yield f"{task}: {label}: {FEWER}× fewer {what} sent", f"{1 / part:.1f}×", met


def _cut(lines: Sequence[Line], task: str) -> Iterator[Goal]:
    theirs = where(lines, method=ONE)
    for label, words, what in (
        (CUT, "two stages", "values and bytes"),
        (TENTH, "two stages, a tenth", "bytes"),
    ):
        mine = where(lines, method=label)
        near = f"{task}: {words} within {POINTS} points of one machine"
        yield of_points(near, differences(mine, theirs), -POINTS)
        goal = f"{task}: {words}: {FEWER_STAGES}× fewer {what} cross"
        if not mine:
            yield missing(goal)
            continue
        keys = ("values_share", "forward_share", "backward_share")
        few, there, back = (mean(mine, key) or 1.0 for key in keys)
        found = f"{1 / few:.1f}× values; bytes: {1 / there:.1f}× forwards, {1 / back:.1f}× backwards"
        counted = max(there, back, few if label == CUT else 0.0)
        yield goal, found, round(1 / counted, 6) >= FEWER_STAGES


def _samples(lines: Sequence[Line], task: str) -> Iterator[Goal]:
    theirs = where(lines, method=ONE)
    for label in (SAMPLES, WARM):
        mine = where(lines, method=label)
        yield of_points(f"{task}: {label}: within 1 point of one machine", differences(mine, theirs), -1.0)
        goal = f"{task}: {label}: {FEWER_STAGES}× fewer bytes cross, both ways together"
        if not mine:
            yield missing(goal)
            continue
        both = (mean(mine, "forward_share") or 1.0) + (mean(mine, "backward_share") or 1.0)
        yield goal, f"{2 / both:.1f}×", 2 / both >= FEWER_STAGES


def per_step(encodings: Mapping[int, Line], life_span: int) -> float:
    """Seconds of encoding per step: one turn in `life_span` finds the threshold anew, and none where a
    controller holds it."""
    line = encodings[life_span]
    if life_span == HELD:
        return float(line["kept_s"])
    return float(line["found_s"] + (life_span - 1) * line["kept_s"]) / life_span


def _overhead(encodings: Mapping[int, Line]) -> Iterator[Goal]:
    if HELD in encodings and 1000 in encodings:
        factor = per_step(encodings, HELD) / per_step(encodings, 1000)
        goal = "encoding with a controller takes at most 1.5× that with a life span of 1,000"
        yield goal, f"{factor:.2f}×", factor <= 1.5
    goal = "encoding at a life span of 1,000 takes at most 1/500 of that at 1"
    if not {0, 1, 1000} <= set(encodings):
        yield missing(goal)
        return
    each, rare = per_step(encodings, 1), per_step(encodings, 1000)
    yield goal, f"1/{each / rare:.1f}: the pass over all values stays", each / rare >= 500
    beside = float(encodings[0]["found_s"]) / rare
    yield "the same, beside torch.topk at each step", f"1/{beside:.0f}", beside >= 500
    chosen = max(encodings[1000]["found_s"] - encodings[1000]["kept_s"], 0.0)
    part = chosen / 1000 / rare
    goal = "the search for the threshold takes at most 1 % of encoding at a life span of 1,000"
    yield goal, f"{part:.3%}; {chosen / each:.0%} at a life span of 1", part <= 0.01


def _learned(lines: Sequence[Line]) -> Section:
    rows = []
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for task in values(lines, "task"):
        panels[task] = {}
        dense = where(lines, task=task, method=DENSE)
        for label in values(lines, "method"):
            mine = where(lines, task=task, method=label)
            if not mine:
                continue
            accuracy = spread([100 * line["accuracy"] for line in mine])
            apart = "–" if label == DENSE else with_range(differences(mine, dense))
            shares = (share(mine, key) for key in ("values", "up_share", "down_share"))
            lr = f"{mine[0]['lr']:g}"
            rows.append([f"{task}: {label}", str(len(mine)), lr, accuracy, apart, *shares])
            if label != DENSE:
                curve = mean_curve(mine, "up_shares")
                panels[task][label] = [(POINT * (at + 1.0), 100 * sent) for at, sent in enumerate(curve)]
    head = ["", "seeds", "learning rate", "accuracy (%)", "against dense, points"]
    head += ["values sent", "bytes sent, of dense", "bytes received, of dense"]
    figure = charts.curves(panels, ("step", "bytes sent, % of dense"), log_y=True)
    plot = Plot("sent", "Bytes sent over training, by task", svg(figure))
    return Section("What is learned and sent", plots=[plot], tables=[Table("", head, rows)])


def _crossed(lines: Sequence[Line]) -> Section:
    rows = []
    for task in values(lines, "task"):
        whole = where(lines, task=task, method=ONE)
        for label in values(lines, "method"):
            mine = where(lines, task=task, method=label)
            if mine:
                both = (spread([100 * line[key] for line in mine]) for key in ("accuracy", "whole_accuracy"))
                apart = "–" if label == ONE else with_range(differences(mine, whole))
                shares = (share(mine, key) for key in ("values_share", "forward_share", "backward_share"))
                rows.append([f"{task}: {label}", str(len(mine)), f"{mine[0]['lr']:g}", *both, apart, *shares])
    head = [
        "",
        "seeds",
        "learning rate",
        "accuracy (%)",
        "with all activations (%)",
        "against one machine, points",
    ]
    head += ["values that cross", "bytes forwards", "bytes backwards"]
    return Section("Two stages of a model", tables=[Table("", head, rows)])


def _encoding(encodings: Mapping[int, Line]) -> Section:
    rows = []
    for life_span, line in sorted(encodings.items()):
        if life_span == 0:
            rows.append(["torch.topk each step", *["–"] * 2, f"{1e3 * line['found_s']:.2f}"])
            continue
        times = (line["found_s"], line["kept_s"], per_step(encodings, life_span))
        name = "held by a controller" if life_span == HELD else f"{life_span:,}"
        rows.append([name, *(f"{1e3 * seconds:.2f}" for seconds in times)])
    head = ["life span", "new threshold (ms)", "old threshold (ms)", "per step (ms)"]
    numel = max(line["numel"] for line in encodings.values())
    title = f"Milliseconds to encode {numel / 1e6:g} million values"
    return Section("Encoding", tables=[Table(title, head, rows)])
