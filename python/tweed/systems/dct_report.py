"""The report of the experiment on DCT. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from tweed.report import charts
from tweed.report.plots import svg
from tweed.report.study import Plot, Section, Table
from tweed.systems.base import Line
from tweed.systems.rehearsal import POINT

Row = list[str]
_DENSE, _DCT, _EACH, _NO_MEMORY = "dense", "DCT", "top-k each step", "DCT, nothing fed back"
_SHORT, _CODED = "DCT, life span 100", "DCT, indices coded"
#: A difference in points that counts as none.
POINTS = 0.5
#: So many times the numbers asked for may be said while a threshold lives.
DRIFT = 2.0

WORDS = (
    "Accuracy is in the mean over seeds; ± half of the range. One learning rate for all sides.",
    "Bytes are those of packets that were packed: 8 per entry, 4 of them its value, and tensors of fewer "
    "than 256 numbers in full. The paper counts values alone; a wire carries indices too.",
    "The first threshold is that of the first gradient, when nothing has been left yet; with what is fed "
    "back more numbers reach it. The paper's trainings are so long that this does not show; these are not.",
    "Encoding was timed on one thread over Gaussian numbers, with error feedback and the native kernels, and "
    "the fastest of nine times counts.",
    "No network takes part in the trainings: workers are virtual, and walk the code that runs live.",
)


def sections(lines: Sequence[Line]) -> list[Section]:
    """Goals, what is learned, how many numbers are said, and what encoding takes."""
    trainings = [line for line in lines if line["kind"] == "training"]
    encodings = {line["life_span"]: line for line in lines if line["kind"] == "encoding"}
    tasks = list(dict.fromkeys(line["task"] for line in trainings))
    goals = [
        row for task in tasks for row in _quality([line for line in trainings if line["task"] == task], task)
    ]
    goals += [*_overhead(encodings), *_fewer(trainings)]
    parts = [Section("Goals", tables=[Table("", ["goal", "measured", ""], goals)])]
    parts += [_learned(trainings, tasks)] if trainings else []
    parts += [_encoding(encodings)] if encodings else []
    return [*parts, Section("To keep in mind", words=WORDS)]


def _verdict(goal: str, said: str, met: bool) -> Row:
    return [goal, said, "met" if met else "missed"]


def _quality(lines: Sequence[Line], task: str) -> Iterator[Row]:
    goals = (
        (f"{task}: DCT within {POINTS} points of dense", _DCT, _DENSE, -POINTS),
        (f"{task}: the same with a life span of 100", _SHORT, _DENSE, -POINTS),
        (f"{task}: DCT within {POINTS} points of top-k each step", _DCT, _EACH, -POINTS),
        (f"{task}: DCT ahead of DCT without error feedback by {POINTS} points", _DCT, _NO_MEMORY, POINTS),
    )
    for goal, mine, theirs, least in goals:
        seeds = _differences(lines, mine, theirs)
        points = statistics.fmean(seeds) if seeds else 0.0
        words = f"{points:+.2f} points over {len(seeds)} seeds"
        yield _verdict(goal, words, points >= least) if seeds else [goal, "–", "–"]
    for label in (_DCT, _SHORT):
        yield _drift(lines, task, label)


def _drift(lines: Sequence[Line], task: str, label: str) -> Row:
    goal = f"{task}: {label} says within {DRIFT:g}× of what was asked for"
    asked = [line["up_share"] for line in lines if line["method"] == _EACH]
    said = [share for line in lines if line["method"] == label for share in line["said"]]
    if not asked or not said:
        return [goal, "–", "–"]
    least, most = (extreme(said) / statistics.fmean(asked) for extreme in (min, max))
    words = f"{least:.2f}× to {most:.2f}×, in the mean over {POINT} steps"
    return _verdict(goal, words, most <= DRIFT and least >= 1 / DRIFT)


def _differences(lines: Sequence[Line], mine: str, theirs: str) -> list[float]:
    base = {line["seed"]: line["accuracy"] for line in lines if line["method"] == theirs}
    return [
        100 * (line["accuracy"] - base[line["seed"]])
        for line in lines
        if line["method"] == mine and line["seed"] in base
    ]


def per_step(encodings: dict[int, Line], life_span: int) -> float:
    """Seconds of encoding per step: one turn in `life_span` finds the threshold anew."""
    line = encodings[life_span]
    return float(line["found_s"] + (life_span - 1) * line["kept_s"]) / life_span


def _overhead(encodings: dict[int, Line]) -> Iterator[Row]:
    goal = "encoding at a life span of 1,000 takes at most 1/500 of that at 1"
    if not {0, 1, 1000} <= set(encodings):
        yield [goal, "–", "–"]
        return
    each, rare = per_step(encodings, 1), per_step(encodings, 1000)
    yield _verdict(goal, f"1/{each / rare:.1f}: the pass over all numbers stays", each / rare >= 500)
    goal = "the same, beside torch.topk at each step"
    beside = float(encodings[0]["found_s"]) / rare
    yield _verdict(goal, f"1/{beside:.0f}", beside >= 500)
    line = encodings[1000]
    chosen = max(line["found_s"] - line["kept_s"], 0.0)
    goal = "the search for the threshold takes at most 1 % of encoding at a life span of 1,000"
    share = chosen / 1000 / rare
    yield _verdict(
        goal, f"{share:.3%}; {chosen / per_step(encodings, 1):.0%} at a life span of 1", share <= 0.01
    )


def _fewer(trainings: Sequence[Line]) -> Iterator[Row]:
    for task in dict.fromkeys(line["task"] for line in trainings):
        mine = _share(trainings, task, _DCT)
        if mine is not None:
            yield _verdict(f"{task}: values said, 100× fewer", f"{2 / mine:.1f}×", 2 / mine >= 100)
            coded = _share(trainings, task, _CODED)
            said = f"{1 / mine:.1f}×" + ("" if coded is None else f"; {1 / coded:.1f}× with indices coded")
            best = 1 / min(mine, coded or mine)
            yield _verdict(f"{task}: bytes said, 100× fewer", said, best >= 100)


def _share(lines: Sequence[Line], task: str, method: str) -> float | None:
    found = [line["up_share"] for line in lines if (line["task"], line["method"]) == (task, method)]
    return statistics.fmean(found) if found else None


def _learned(lines: Sequence[Line], tasks: Sequence[str]) -> Section:
    rows = []
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {task: {} for task in tasks}
    for task in tasks:
        for label in dict.fromkeys(line["method"] for line in lines):
            mine = [line for line in lines if (line["task"], line["method"]) == (task, label)]
            if not mine:
                continue
            reached = [100 * line["accuracy"] for line in mine]
            accuracy = f"{statistics.fmean(reached):.2f} (± {(max(reached) - min(reached)) / 2:.2f})"
            up, down = (statistics.fmean(line[key] for line in mine) for key in ("up_share", "down_share"))
            rows.append([f"{task}: {label}", str(len(mine)), accuracy, f"{up:.2%}", f"{down:.2%}"])
            curve = [
                statistics.fmean(shares) for shares in zip(*(line["said"] for line in mine), strict=False)
            ]
            if label in (_DCT, _SHORT, _EACH, _NO_MEMORY):
                panels[task][label] = [
                    (POINT * (place + 1.0), 100 * share) for place, share in enumerate(curve)
                ]
    head = ["", "seeds", "accuracy (%)", "said, of dense bytes", "told, of dense bytes"]
    figure = charts.curves(panels, ("step", "bytes said, % of dense"), log_y=True)
    plot = Plot("said", "Bytes said over training, by task", svg(figure))
    return Section("What is learned and said", plots=[plot], tables=[Table("", head, rows)])


def _encoding(encodings: dict[int, Line]) -> Section:
    rows = []
    for life_span, line in sorted(encodings.items()):
        if life_span == 0:
            rows.append(["torch.topk each step", *["–"] * 2, f"{1e3 * line['found_s']:.2f}"])
            continue
        mean = per_step(encodings, life_span)
        times = (line["found_s"], line["kept_s"], mean)
        rows.append([f"{life_span:,}", *(f"{1e3 * seconds:.2f}" for seconds in times)])
    head = ["life span", "new threshold (ms)", "old threshold (ms)", "per step (ms)"]
    numel = max(line["numel"] for line in encodings.values())
    return Section(
        "Encoding", tables=[Table(f"Milliseconds to encode {numel / 1e6:g} million numbers", head, rows)]
    )
