"""The page: settings, results, plots and what to keep in mind, from a run's folder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tweed.files import write_atomic
from tweed.report import epochs, members, network, timeline
from tweed.report.plots import ACCURACY, LOSS, TEST_LOSS, TIME, Quantity, draw, svg
from tweed.train.folder import RunFolder
from tweed.train.results import Reached, Side, by_side, reached, sent

if TYPE_CHECKING:
    from jinja2 import Environment


def write(folder: Path) -> Path:
    """Writes `report.html` into a run's folder.

    Args:
      folder: has `run.json`, `metrics.jsonl` and, of a testbed, `links.jsonl`, as `tweed train` writes them.

    Returns: the path of the report. It is one file, without links to others.

    Raises: UsageError if there is no run in `folder`, or one of another version of tweed.

    Cost: about a second, for the import of matplotlib.
    """
    run = RunFolder(folder)
    path = folder / "report.html"
    lines = (run.link_lines(), run.commit_lines(), run.epoch_lines())
    page = render(folder.name, run.facts(), run.figures(), *lines)
    write_atomic(path, page)
    return path


def render(
    name: str,
    facts: Mapping[str, Any],
    figures: Side,
    links: Side = (),
    commits: Side = (),
    entered: Side = (),
) -> str:
    """The page as HTML.

    Args:
      name: of the run.
      facts: contents of `run.json`.
      figures: lines of `metrics.jsonl`.
      links: lines of `links.jsonl`.
      commits: lines of `commits.jsonl`.
      entered: lines of `epochs.jsonl`.
    """
    sides = by_side(facts["sides"], figures)
    same, words = reached(sides), network.words(facts)
    said = members.notes(facts) if commits else notes(facts, len(sides), links)
    return (
        environment()
        .get_template("report.html")
        .render(
            name=name,
            facts=facts,
            results=[result(title, side) for title, side in sides.items()],
            plots=plots(sides, network.sent(facts), words) if sides else {},
            same=None if same is None else at_same_accuracy(same, network.sent(facts), words),
            network=words,
            members=members.table(commits),
            timelines=timelines(sides),
            epochs=changes(sides, entered),
            rejections=members.rejections(commits),
            notes=[*said, *filter(None, map(compression, sides.values()))],
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


def plots(sides: Mapping[str, Side], sent: Quantity, words: str) -> dict[str, str]:
    """Loss and accuracy against time and bytes, by the plot's title.

    Args:
      sent: what stands for bytes.
      words: about the network.
    """
    known = all(any(row["loss"] is not None for row in side) for side in sides.values())
    loss = LOSS if known else TEST_LOSS
    quantities: dict[str, tuple[Quantity, Quantity]] = {
        "Loss against time": (TIME, loss),
        "Accuracy against time": (TIME, ACCURACY),
        "Loss against bytes": (sent, loss),
        "Accuracy against bytes": (sent, ACCURACY),
    }
    return {title: svg(draw(sides, x, y, words)) for title, (x, y) in quantities.items()}


def changes(sides: Mapping[str, Side], lines: Side) -> dict[str, Any] | None:
    """Members over time, and a table of epochs; None where they were the same throughout, or where an earlier
    version of tweed did not note who they were.

    Args:
      sides: an elastic run has one.
      lines: of `epochs.jsonl`.
    """
    if len(lines) < 2 or not sides or any("keys" not in line for line in lines):
        return None
    side = next(iter(sides.values()))
    until_s = max(side[-1]["seconds"], lines[-1]["seconds"])
    return {"plot": svg(epochs.draw(lines, until_s)), "rows": [epochs.row(line) for line in lines]}


def timelines(sides: Mapping[str, Side]) -> dict[str, dict[str, str]]:
    """The picture of one step of each rank, and words about it, by the side's title."""
    found = {title: by_rank for title, side in sides.items() if (by_rank := timeline.of(side)) is not None}
    return {
        title: {"words": timeline.words(by_rank), "plot": svg(timeline.draw(by_rank))}
        for title, by_rank in found.items()
    }


def at_same_accuracy(same: Reached, sent: Quantity, words: str) -> dict[str, Any]:
    """The part of a page for what sides took to the same accuracy: its level, table and plots."""
    return {
        "accuracy": f"{same.accuracy:.2%}",
        "results": [result(title, side) for title, side in same.sides.items()],
        "plots": {
            f"{title} to this accuracy": svg(draw(same.sides, x, ACCURACY, words, same.accuracy))
            for title, x in {"Time": TIME, "Bytes": sent}.items()
        },
    }


def result(title: str, side: Side) -> dict[str, str]:
    """A row of a table of results: the last figures of a side, in words."""
    last = side[-1]
    waited = last["waiting_s"]
    return {
        "side": title,
        "training time": f"{last['seconds']:.1f} s",
        "sent per worker": f"{sent(last) / 1e6:,.1f} MB",
        "waited on the network": "not known" if waited is None else f"{waited:.1f} s",
        "accuracy": _or_dash(last["accuracy"], "{:.2%}"),
        "test loss": _or_dash(last["test_loss"], "{:.4f}"),
        "steps": f"{last['step']:,}",
        "samples/s": f"{last['samples'] / max(last['seconds'], 1e-9):,.0f}",
        "delivered": "all" if last["delivered"] is None else f"{min(last['delivered']):.2%} or more per rank",
    }


def _or_dash(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)


def notes(facts: Mapping[str, Any], sides: int, links: Side = ()) -> list[str]:
    """What to keep in mind when reading the figures."""
    settings, machine = facts["settings"], facts["machine"]
    sentences = [
        _where(facts["one_host"], settings["workers"], machine["cores"]),
        *network.notes(facts, links),
        _COUNTED,
        f"Accuracy and test loss are over the first {facts['test_samples']:,} test samples.",
    ]
    if sides > 1:
        sentences.append("The sides ran one after the other, with the same seed, batches and learning rates.")
        sentences.append("DDP keeps no count of the time it waits on the network.")
        sentences.append("Accuracy is known at evaluations only: a side may have had it somewhat earlier.")
    return sentences


_COUNTED = (
    "Training is the first broadcast of the model, the steps, and the exchange that ends them. Time (rank "
    "0's), waiting and bytes are of these alone: evaluations, with the averages that they need, and "
    "checkpoints are left out."
)


def compression(side: Side) -> str | None:
    """What a side's own choice of a compressor came to, in a sentence; None if there was none to make."""
    compression = side[-1].get("compression")
    if compression is None:
        return None
    below, pays = compression["break_even_bits"] / 1e6, compression["gain"] > 1
    where = "on any link" if below == math.inf else f"on links below {below:,.0f} Mbit/s per rank"
    brings = (
        f"An exchange took 1/{compression['gain']:.1f} of the time of all numbers"
        if pays
        else "It did not pay"
    )
    return f'compress="auto" took {compression["chosen"]}. {brings}; by what was measured it pays {where}.'


def _where(one_host: bool, workers: int, cores: int) -> str:
    if not one_host:
        return f"The {workers} workers were started by torchrun. Where they ran is not known to this page."
    turns = " and so took turns" if workers > cores else ""
    times = "Times hold for this machine at that hour, with whatever else it did"
    return f"All {workers} workers ran on one host with {cores} cores{turns}. {times}."
