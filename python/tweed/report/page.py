"""The page: settings, results, plots and what to keep in mind, from a run's folder."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tweed.errors import UsageError
from tweed.files import write_atomic
from tweed.report import network
from tweed.report.plots import ACCURACY, LOSS, TIME, Quantity, Side, draw, svg

if TYPE_CHECKING:
    from jinja2 import Environment


def write(folder: Path) -> Path:
    """Writes `report.html` into a run's folder.

    Args:
      folder: has `run.json`, `metrics.jsonl` and, of a testbed, `links.jsonl`, as `tweed train` writes them.

    Returns: the path of the report. It is one file, without links to others.

    Raises: UsageError if there is no run in `folder`.

    Cost: about a second, for the import of matplotlib.
    """
    if not (folder / "run.json").exists():
        raise UsageError(f"there is no run in {folder}: it has no run.json")
    facts = json.loads((folder / "run.json").read_text())
    figures, links = (_lines(folder / name) for name in ("metrics.jsonl", "links.jsonl"))
    page = render(folder.name, facts, figures, links)
    path = folder / "report.html"
    write_atomic(path, page)
    return path


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def render(name: str, facts: Mapping[str, Any], figures: Side, links: Side = ()) -> str:
    """The page as HTML.

    Args:
      name: of the run.
      facts: contents of `run.json`.
      figures: lines of `metrics.jsonl`.
      links: lines of `links.jsonl`.
    """
    sides = {
        title: [told for told in figures if told["side"] == label] for label, title in facts["sides"].items()
    }
    sides = {title: told for title, told in sides.items() if told}
    return (
        environment()
        .get_template("report.html")
        .render(
            name=name,
            facts=facts,
            results=[result(title, side) for title, side in sides.items()],
            plots=_plots(facts, sides) if sides else {},
            network=network.words(facts),
            notes=[*notes(facts, len(sides), links), *filter(None, map(compression, sides.values()))],
        )
    )


def environment() -> Environment:
    """Where templates are found, and how they are filled in."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("tweed.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _plots(facts: Mapping[str, Any], sides: Mapping[str, Side]) -> dict[str, str]:
    sent = network.sent(facts)
    plots: dict[str, tuple[Quantity, Quantity]] = {
        "Loss against time": (TIME, LOSS),
        "Accuracy against time": (TIME, ACCURACY),
        "Loss against bytes": (sent, LOSS),
        "Accuracy against bytes": (sent, ACCURACY),
    }
    return {title: svg(draw(sides, x, y, network.words(facts))) for title, (x, y) in plots.items()}


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
        "sent per worker": f"{network.sent_bytes(last) / 1e6:,.1f} MB",
        "waited on the network": "not told" if waited is None else f"{waited:.1f} s",
        "delivered": "all" if last["delivered"] is None else f"{min(last['delivered']):.2%} or more per rank",
    }


def _or_dash(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)


def notes(facts: Mapping[str, Any], sides: int, links: Side = ()) -> list[str]:
    """What to keep in mind when reading the figures."""
    settings, machine = facts["settings"], facts["machine"]
    said = [
        _where(facts["one_host"], settings["workers"], machine["cores"]),
        *network.notes(facts, links),
        "Training time is rank 0's, in training steps alone. Evaluations and checkpoints are left out.",
        f"Accuracy and test loss are over the first {facts['test_samples']:,} test samples.",
    ]
    if sides > 1:
        said.append("The sides ran one after the other, with the same seed, batches and learning rates.")
        said.append("DDP keeps no count of the time it waits on the network.")
    return said


def compression(side: Side) -> str | None:
    """What a side's own choice of a compressor came to, in a sentence; None if there was none to make."""
    told = side[-1].get("compression")
    if told is None:
        return None
    below, pays = told["break_even_bits"] / 1e6, told["gain"] > 1
    where = "on any link" if below == math.inf else f"on links below {below:,.0f} Mbit/s per rank"
    brings = f"An exchange took 1/{told['gain']:.1f} of the time of all numbers" if pays else "It did not pay"
    return f'compress="auto" took {told["chosen"]}. {brings}; by what was measured it pays {where}.'


def _where(one_host: bool, workers: int, cores: int) -> str:
    if not one_host:
        return f"The {workers} workers were started by torchrun. Where they ran is not known to this page."
    turns = " and so took turns" if workers > cores else ""
    times = "Times hold for this machine at that hour, with whatever else it did"
    return f"All {workers} workers ran on one host with {cores} cores{turns}. {times}."
