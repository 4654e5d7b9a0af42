"""The report of an experiment: text, tables and plots as values, written as one HTML page or as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tweed.errors import UsageError
from tweed.files import write_atomic

_BEGIN, _END = "<!-- figures: begin -->", "<!-- figures: end -->"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells in words; the first cell of a row is its name."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Plot:
    """An SVG element. `name` is its file's, where it becomes one."""

    name: str
    title: str
    svg: str


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the report, under a heading."""

    title: str
    words: Sequence[str] = ()
    plots: Sequence[Plot] = ()
    tables: Sequence[Table] = ()


@dataclass(frozen=True, slots=True)
class Study:
    """A report. `lead` is a sentence or two under the title."""

    title: str
    lead: str
    sections: Sequence[Section]


def page(study: Study, facts: Mapping[str, Any]) -> str:
    """The report as HTML, that needs nothing else to be looked at.

    Args:
      facts: `command`, `settings`, `versions`, `machine` and `started`, as in a run's `run.json`.
    """
    from tweed.report.page import environment

    found = environment().get_template("study.html")
    return found.render(name=study.title, study=study, facts=facts)


def markdown(study: Study, prefix: str) -> str:
    """The sections as Markdown, for a page that has the plots beside it as `{prefix}-{name}.svg`."""
    return "\n".join(_lines(study, prefix)) + "\n"


def _lines(study: Study, prefix: str) -> Iterator[str]:
    for number, section in enumerate(study.sections):
        yield from [""] * (number > 0)
        yield f"### {section.title}"
        for text in section.words:
            yield f"\n{text}"
        for plot in section.plots:
            yield f"\n![{plot.title}]({prefix}-{plot.name}.svg)"
        for table in section.tables:
            yield from ["", *_table(table)]


def _table(table: Table) -> Iterator[str]:
    if table.title:
        yield f"{table.title}:\n"
    yield _row(table.head)
    yield _row(["---", *["---:"] * (len(table.head) - 1)])
    yield from map(_row, table.rows)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def put_in(path: Path, study: Study) -> None:
    """Replaces what a Markdown page has between its two marks, and writes the plots beside it.

    The marks are comments, `<!-- figures: begin -->` and `<!-- figures: end -->`.

    Raises: UsageError if the page has none.
    """
    before, begin, rest = path.read_text(encoding="utf-8").partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise UsageError(f"{path} has no {_BEGIN} with {_END} after it: nothing says where figures go")
    text = markdown(study, path.stem)
    write_atomic(path, f"{before}{_BEGIN}\n{text}{_END}{after}")
    for section in study.sections:
        for plot in section.plots:
            write_atomic(path.parent / f"{path.stem}-{plot.name}.svg", plot.svg + "\n")
