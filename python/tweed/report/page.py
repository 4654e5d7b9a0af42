"""The page: settings, results, plots and what to keep in mind, from a run's folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tweed.errors import UsageError
from tweed.report.plots import ACCURACY, BYTES, LOSS, TIME, Side, draw, svg

PLOTS = {
    "Loss against time": (TIME, LOSS),
    "Accuracy against time": (TIME, ACCURACY),
    "Loss against bytes": (BYTES, LOSS),
    "Accuracy against bytes": (BYTES, ACCURACY),
}


def write(folder: Path) -> Path:
    """Writes `report.html` into a run's folder.

    Args:
      folder: has `run.json` and `metrics.jsonl`, as `tweed train` writes them.

    Returns: the path of the report. It is one file, without links to others.

    Raises: UsageError if there is no run in `folder`.

    Cost: about a second, for the import of matplotlib.
    """
    if not (folder / "run.json").exists():
        raise UsageError(f"there is no run in {folder}: it has no run.json")
    facts = json.loads((folder / "run.json").read_text())
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    page = render(folder.name, facts, [json.loads(line) for line in lines])
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


def render(name: str, facts: Mapping[str, Any], figures: Side) -> str:
    """The page as HTML.

    Args:
      name: of the run.
      facts: contents of `run.json`.
      figures: lines of `metrics.jsonl`.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("tweed.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sides = {
        title: [told for told in figures if told["side"] == label] for label, title in facts["sides"].items()
    }
    sides = {title: told for title, told in sides.items() if told}
    return environment.get_template("report.html").render(
        name=name,
        facts=facts,
        results=[result(title, side) for title, side in sides.items()],
        plots={title: svg(draw(sides, x, y)) for title, (x, y) in PLOTS.items()} if sides else {},
        notes=notes(facts, len(sides)),
    )


def _told_by(label: str, figures: Side) -> Side:
    return [told for told in figures if told["side"] == label]


def result(title: str, side: Side) -> dict[str, str]:
    """A row of the table of results: the last figures of a side, in words."""
    last = side[-1]
    waited = last["waiting_s"]
    return {
        "side": title,
        "steps": f"{last['step']:,}",
        "accuracy": _or_dash(last["accuracy"], "{:.2%}"),
        "test loss": _or_dash(last["test_loss"], "{:.4f}"),
        "training time": f"{last['seconds']:.1f} s",
        "samples/s": f"{last['samples'] / max(last['seconds'], 1e-9):,.0f}",
        "sent per worker": f"{last['bytes_per_worker'] / 1e6:,.1f} MB",
        "waited on the network": "not told" if waited is None else f"{waited:.1f} s",
    }


def _or_dash(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)


def notes(facts: Mapping[str, Any], sides: int) -> list[str]:
    """What to keep in mind when reading the figures."""
    settings, machine = facts["settings"], facts["machine"]
    said = [
        _where(facts["one_host"], settings["workers"], machine["cores"]),
        "The network was not shaped: no link was slow or lost anything.",
        "Training time is rank 0's, in training steps alone. Evaluations and checkpoints are left out.",
        "Bytes sent are computed, by the same rule for every side: 2 (N − 1) / N of the buffers that went "
        "into all-reduces, which is what a ring sends. Headers and retransmissions are not in them.",
        f"Accuracy and test loss are over the first {facts['test_samples']:,} test samples.",
    ]
    if sides > 1:
        said.append("The sides ran one after the other, with the same seed, batches and learning rates.")
        said.append("DDP keeps no count of the time it waits on the network.")
    return said


def _where(one_host: bool, workers: int, cores: int) -> str:
    if not one_host:
        return f"The {workers} workers were started by torchrun. Where they ran is not known to this page."
    turns = " and so took turns" if workers > cores else ""
    times = "Times hold for this machine at that hour, with whatever else it did"
    return f"All {workers} workers ran on one host with {cores} cores{turns}. {times}."
