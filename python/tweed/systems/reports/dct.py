"""Tables and plots of the experiment on DCT. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tweed.experiments.notes import Line, mean_curve, values, where
from tweed.experiments.simulated_training import POINT
from tweed.report import charts
from tweed.report.comparison import share, spread
from tweed.report.plots import svg
from tweed.report.study import Plot, Section, Table

DENSE, DCT, EACH, NO_MEMORY = "dense", "DCT", "top-k each step", "DCT, nothing fed back"
SHORT, CODED = "DCT, life span 100", "DCT, indices coded"

WORDS = (
    "Accuracy is in the mean over seeds; ± half of the range. One learning rate for all sides.",
    "Bytes are those of packets that were packed: 8 per entry, 4 of them its value, and tensors of fewer "
    "than 256 values in full. The paper counts values alone; a wire carries indices too.",
    "The first threshold is that of the first gradient, when there is no residual yet; with what is fed "
    "back more values reach it. The paper's trainings are so long that this does not show; these are not.",
    "Encoding was timed on one thread over Gaussian values, with error feedback and the native kernels, and "
    "the fastest of nine times counts.",
    "No network takes part in the trainings: workers are virtual, and run the code that runs live.",
)


def sections(trainings: Sequence[Line], encodings: Mapping[int, Line]) -> list[Section]:
    """What is learned, how many values are sent, and what encoding takes."""
    parts = [_learned(trainings)] if trainings else []
    parts += [_encoding(encodings)] if encodings else []
    return [*parts, Section("To keep in mind", words=WORDS)]


def per_step(encodings: Mapping[int, Line], life_span: int) -> float:
    """Seconds of encoding per step: one turn in `life_span` finds the threshold anew."""
    line = encodings[life_span]
    return float(line["found_s"] + (life_span - 1) * line["kept_s"]) / life_span


def _learned(lines: Sequence[Line]) -> Section:
    rows = []
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for task in values(lines, "task"):
        panels[task] = {}
        for label in values(lines, "method"):
            mine = where(lines, task=task, method=label)
            if not mine:
                continue
            accuracy = spread([100 * line["accuracy"] for line in mine])
            shares = (share(mine, key) for key in ("up_share", "down_share"))
            rows.append([f"{task}: {label}", str(len(mine)), accuracy, *shares])
            if label in (DCT, SHORT, EACH, NO_MEMORY):
                curve = mean_curve(mine, "up_shares")
                panels[task][label] = [(POINT * (at + 1.0), 100 * sent) for at, sent in enumerate(curve)]
    head = ["", "seeds", "accuracy (%)", "sent, of dense bytes", "received, of dense bytes"]
    figure = charts.curves(panels, ("step", "bytes sent, % of dense"), log_y=True)
    plot = Plot("sent", "Bytes sent over training, by task", svg(figure))
    return Section("What is learned and sent", plots=[plot], tables=[Table("", head, rows)])


def _encoding(encodings: Mapping[int, Line]) -> Section:
    rows = []
    for life_span, line in sorted(encodings.items()):
        if life_span == 0:
            rows.append(["torch.topk each step", *["–"] * 2, f"{1e3 * line['found_s']:.2f}"])
            continue
        times = (line["found_s"], line["kept_s"], per_step(encodings, life_span))
        rows.append([f"{life_span:,}", *(f"{1e3 * seconds:.2f}" for seconds in times)])
    head = ["life span", "new threshold (ms)", "old threshold (ms)", "per step (ms)"]
    numel = max(line["numel"] for line in encodings.values())
    title = f"Milliseconds to encode {numel / 1e6:g} million values"
    return Section("Encoding", tables=[Table(title, head, rows)])
