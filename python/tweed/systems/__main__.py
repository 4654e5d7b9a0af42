"""`python -m tweed.systems`: renews the tables in README.md and docs/systems.md, of systems and of all names,
those of docs/choosing.md and README's picture, from runs/published.

A system's figures, and how many goals it met, are those of docs/NAME.md, where
`tweed reproduce NAME --page` puts them.
What a user may name comes from the public lists of the stages, so that no name can be left out.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from tweed import aggregate, cadence, collective, compress, order, transport
from tweed.files import write_atomic
from tweed.recipes.named import described_strategies
from tweed.report import plots
from tweed.report.notes import Notes
from tweed.report.study import Section, Study, Table, markdown, part, replace_part
from tweed.systems import SYSTEMS, choosing, system
from tweed.systems.compression import report_step_times as step_times

#: Of goals; a difference within the noise of seeds is level.
VERDICTS = ("met", "no difference", "missed")
FIGURE = r"[-+−]?\d[\d.,]*(?:e[-+]?\d+)?"
README, PAGE, CHOOSING = Path("README.md"), Path("docs/systems.md"), Path("docs/choosing.md")
PICTURE = Path("docs/step-times.svg")
Kind = tuple[str, ModuleType, str]
#: Title, the stage, and what the contract of such parts has and no other class of the stage.
KINDS: tuple[Kind, ...] = (
    ("Codecs, in `compress=`", compress, "packet_bytes"),
    ("Memories around codecs, in `compress=`", compress, "replicas_diverge"),
    ("Cadences, in `cadence=`", cadence, "needs_norm"),
    ("Outer optimizers, of a cadence", cadence, "advance"),
    ("Servers, in `collective=`", collective, "rank"),
    ("Transports, in `transport=`", transport, "may_lose"),
    ("Aggregates, in `aggregate=`", aggregate, "require"),
    ("When a hub commits", aggregate, "within_s"),
    ("Orders, of a hub", order, "at_once"),
)


def pages(root: Path) -> dict[Path, str]:
    """The part "systems" of each page of the repository at `root`."""
    names = [Section("Named strategies", tables=[_strategies()]), *map(_kind, KINDS), _rest()]
    found = {
        README: [_systems(root, "docs/", whole=False)],
        PAGE: [_systems(root, "", whole=True), *names],
        CHOOSING: _choosing(root),
    }
    # Cells are words here, so no column is set flush right.
    return {
        root / page: markdown(Study("", "", parts), "").replace("---:", "---")
        for page, parts in found.items()
    }


def _systems(root: Path, folder: str, whole: bool) -> Section:
    """All systems, a row each.

    Args:
      folder: of the systems' pages, as seen from the page that gets the table.
      whole: with where a system is described, and what it is made of.
    """
    rows = []
    for name in SYSTEMS:
        text = part(root / f"docs/{name}.md", "figures")
        cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
        found, figures = system(name), {goal: cell for goal, cell, *_ in cells}
        line = found.headline
        here = line.here.format(*(figure(figures[goal]) for goal in line.goals))
        source = [found.title, found.paper, f"`{found.parts}`"] if whole else []
        rows.append([f"[{name}]({folder}{name}.md)", *source, line.claim, here, line.wanted, _counts(cells)])
    source = ["what", "described in", "parts here"] if whole else []
    head = ["name", *source, "the paper", "here", "take it for", "met · level · missed"]
    return Section("Published systems", tables=[Table("", head, rows)])


def _counts(rows: list[list[str]]) -> str:
    """How many goals were met, level and missed, of those that stood before the run."""
    found, fixed = [], False
    for row in rows:
        fixed = "added after" not in row[0] if row[1] == "measured" else fixed
        found += [row[-1]] if fixed else []
    return " · ".join(str(found.count(verdict)) for verdict in VERDICTS)


def figure(cell: str) -> str:
    """The first figure of a cell that has a unit, or else the first one; a dash: nothing was measured."""
    if cell == "–":
        return cell
    units = r"(?: ?×| points| %|%| ms| s\b)"
    found = re.search(rf"{FIGURE}{units}", cell) or re.search(FIGURE, cell)
    if found is None:
        raise ValueError(f"no figure in {cell!r}")
    return found[0]


def _choosing(root: Path) -> list[Section]:
    notes = [Notes(root / f"runs/published/{name}").lines for name in ("compression", "ltp")]
    return choosing.sections(*notes)


def _strategies() -> Table:
    rows = [[f"`{text}`", what, when] for text, what, when in described_strategies()]
    return Table("", ["name", "what", "when to take it"], rows)


def _kind(kind: Kind) -> Section:
    rows = [[_call(found), _first(found)] for found in _of(kind)]
    return Section(kind[0], tables=[Table("", ["part", "what"], rows)])


def _of(kind: Kind) -> list[type]:
    """The classes of a kind that its stage exports, the contract itself left out."""
    found = [getattr(kind[1], name) for name in kind[1].__all__]
    classes = [
        value for value in found if inspect.isclass(value) and not getattr(value, "_is_protocol", False)
    ]
    return [value for value in classes if hasattr(value, kind[2])]


def _rest() -> Section:
    """What the stages export besides."""
    parts = {found.__name__ for kind in KINDS for found in _of(kind)}
    stages = dict.fromkeys(stage for _, stage, _ in KINDS if stage is not collective)
    names = {stage: ", ".join(f"`{name}`" for name in stage.__all__ if name not in parts) for stage in stages}
    words = [f"`{stage.__name__}`: {text}." for stage, text in names.items()]
    return Section("Contracts and values, for who writes a part", words=words)


def _call(part: type) -> str:
    settings = inspect.signature(part).parameters.values()
    given = [one.replace(annotation=one.empty) for one in settings if one.kind is not one.VAR_POSITIONAL]
    return f"`{part.__name__}({', '.join(str(one) for one in given if one.kind is not one.VAR_KEYWORD)})`"


def _first(value: Any) -> str:
    """The first paragraph of its docstring, in one line."""
    return " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())


def picture(root: Path) -> str:
    """README's picture of seconds per step, as an SVG file."""
    return plots.svg(step_times.draw(Notes(root / "runs/published/compression").lines)) + "\n"


if __name__ == "__main__":
    write_atomic(PICTURE, picture(Path()))
    for path, text in pages(Path()).items():
        replace_part(path, "systems", text)
