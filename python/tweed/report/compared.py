"""Any stored runs beside each other: what each took to the same accuracy, and how their settings differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tweed.errors import UsageError
from tweed.files import write_atomic
from tweed.report import network
from tweed.report.page import at_same_accuracy, environment, plots, result
from tweed.report.plots import BYTES, LINK_BYTES
from tweed.train.folder import RunFolder
from tweed.train.results import Side, by_side, reached

_MIXED = (
    "Bytes of some of these runs were measured at links, with headers and what was sent again, and those of "
    "others are computed: plots show what is computed of all, tables what there is of each."
)
_HOSTS = "The runs were made on different machines: times are not to be compared."


def write(folders: Sequence[Path], out: Path) -> Path:
    """Writes a page about several runs.

    Args:
      folders: of the runs, two or more, as for `report.write`.
      out: of the page; replaced if it is there.

    Returns: `out`.

    Raises: UsageError if there are fewer than two runs, if one cannot be read, if they train another task or
      test on another number of samples, or if one has no figures yet.
    """
    if len(folders) < 2:
        raise UsageError("give two runs or more to compare; `tweed report RUN` writes the page of one")
    runs = {name: RunFolder(folder) for name, folder in _names(folders).items()}
    facts = {name: run.facts() for name, run in runs.items()}
    page = render(facts, {name: run.figures() for name, run in runs.items()})
    write_atomic(out, page)
    return out


def render(facts: Mapping[str, Mapping[str, Any]], figures: Mapping[str, Side]) -> str:
    """The page as HTML.

    Args:
      facts: contents of `run.json`, by run.
      figures: lines of `metrics.jsonl`, by run.

    Raises: UsageError as `write`.
    """
    _check(facts)
    sides = {
        f"{name}: {title}": side
        for name, known in facts.items()
        for title, side in by_side(known["sides"], figures[name]).items()
    }
    for name in facts:
        if not any(title.startswith(f"{name}: ") for title in sides):
            raise UsageError(f"run {name} has told no figures yet: let it train, or leave it out")
    measured = all(network.sent(known) is LINK_BYTES for known in facts.values())
    sent = LINK_BYTES if measured else BYTES
    same = reached(sides)
    return (
        environment()
        .get_template("compared.html")
        .render(
            name=", ".join(facts),
            task=next(iter(facts.values()))["settings"]["task"],
            commands={name: known["command"] for name, known in facts.items()},
            differences=differences(facts),
            results=[result(title, side) for title, side in sides.items()],
            plots=plots(sides, sent, ""),
            same=None if same is None else at_same_accuracy(same, sent, ""),
            notes=_notes(facts, measured),
        )
    )


def differences(facts: Mapping[str, Mapping[str, Any]]) -> list[dict[str, str]]:
    """A row for each setting, version or part of the machine that is not the same in all runs."""
    told = {name: _flat(known) for name, known in facts.items()}
    keys = dict.fromkeys(key for one in told.values() for key in one)
    rows = [{"side": key} | {name: one.get(key, "–") for name, one in told.items()} for key in keys]
    return [row for row in rows if len(set(list(row.values())[1:])) > 1]


def _flat(facts: Mapping[str, Any]) -> dict[str, str]:
    parts = facts["settings"], facts["versions"], facts["machine"]
    return {key: "none" if value is None else str(value) for part in parts for key, value in part.items()}


def _check(facts: Mapping[str, Mapping[str, Any]]) -> None:
    """What is compared is one measure."""
    first, *others = facts
    for name in others:
        one, other = (
            f"{run} trains {facts[run]['settings']['task']} and tests on {facts[run]['test_samples']} samples"
            for run in (first, name)
        )
        if one.removeprefix(first) != other.removeprefix(name):
            raise UsageError(f"these runs cannot be compared: {one}, and {other}")


def _notes(facts: Mapping[str, Mapping[str, Any]], measured: bool) -> list[str]:
    some = any(network.sent(known) is LINK_BYTES for known in facts.values())
    hosts = {tuple(sorted(known["machine"].items())) for known in facts.values()}
    words = [f"{name}: {network.words(known)}, started {known['started']}." for name, known in facts.items()]
    return [*words, *[_HOSTS] * (len(hosts) > 1), *[_MIXED] * (some and not measured)]


def _names(folders: Sequence[Path]) -> dict[str, Path]:
    """The folders by their names, or by their paths where two have one name."""
    names = [folder.name for folder in folders]
    return {str(one) if names.count(one.name) > 1 else one.name: one for one in folders}
