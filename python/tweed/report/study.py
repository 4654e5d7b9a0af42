"""The report of an experiment: text, tables and plots as values, written as one HTML page or as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tweed.errors import UsageError
from tweed.files import write_atomic


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
    """Replaces the part "figures" of a Markdown page, and writes the plots beside it.

    Raises: UsageError if the page has no such part.
    """
    replace_part(path, "figures", markdown(study, path.stem))
    for section in study.sections:
        for plot in section.plots:
            write_atomic(path.parent / f"{path.stem}-{plot.name}.svg", plot.svg + "\n")


def replace_part(path: Path, mark: str, text: str) -> None:
    """Replaces what a page has between the comments `<!-- MARK: begin -->` and `<!-- MARK: end -->`.

    Args:
      text: whole lines.

    Raises: UsageError if the page has no such marks.
    """
    before, _, after = _parted(path, mark)
    write_atomic(path, f"{before}\n{text}{after}")


def part(path: Path, mark: str) -> str:
    """What a page has between those comments. Raises: UsageError if it has none."""
    return _parted(path, mark)[1].removeprefix("\n")


def _parted(path: Path, mark: str) -> tuple[str, str, str]:
    """A page until its begin mark, between its marks, and from its end mark on; marks are with the outer."""
    begin, end = (f"<!-- {mark}: {which} -->" for which in ("begin", "end"))
    before, found, rest = path.read_text(encoding="utf-8").partition(begin)
    inner, closed, after = rest.partition(end)
    if not found or not closed:
        raise UsageError(f"{path} has no {begin} with {end} after it: nothing says where {mark} go")
    return before + begin, inner, end + after
