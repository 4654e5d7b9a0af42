"""Measures, prints the tables, and puts raw data and tables into the repository."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from bench import machine, parts, pictures, run, table
from bench.run import Row

_HERE = Path(__file__).parent
_PAGE = _HERE.parent / "docs" / "benchmarks.md"
_PICTURE = _HERE.parent / "docs" / "schedules.svg"
_GROWTH = _HERE.parent / "docs" / "builders.svg"


def main(
    quick: Annotated[
        bool, typer.Option(help="A look of two minutes: few cases, few calls; writes nothing.")
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option(help="Measure this part alone; may be repeated; writes nothing.")
    ] = None,
    into: Annotated[Path | None, typer.Option(help="Put the measured parts into this raw data.")] = None,
    tables: Annotated[Path | None, typer.Option(help="Measure nothing: tables from this raw data.")] = None,
) -> None:
    """Measures tweed beside its peers; writes bench/results/ and the tables of docs/benchmarks.md."""
    if tables is not None:
        _write_page(_read(tables))
        return
    rows = list(_measured(parts.QUICK if quick else parts.FULL, only))
    print(table.page(rows))
    if into is not None:
        _write(run.replaced(_read(into), rows), into)
    elif not quick and not only:
        _write(rows, _HERE / "results" / machine.file_name(rows[0]))


def _measured(chosen: dict[str, parts.Part], only: Iterable[str] | None) -> Iterator[Row]:
    names = list(only or chosen)
    if unknown := [name for name in names if name not in chosen]:
        raise typer.BadParameter(f"there is no part {unknown[0]!r}; there are {', '.join(chosen)}")
    environment = machine.environment() | ({"only": ", ".join(only)} if only else {})
    if warning := machine.warning(environment):
        print(f"WARNING: {warning}", file=sys.stderr)
    yield environment
    for name in names:
        print(name, file=sys.stderr, flush=True)
        yield from chosen[name]()


def _read(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _write(rows: list[Row], path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    _write_page(rows)
    print(f"raw data in {path}, tables in {_PAGE}", file=sys.stderr)


def _write_page(rows: list[Row]) -> None:
    _PAGE.write_text(table.put(_PAGE.read_text(), table.page(rows)))
    pictures.draw_predictions(rows, _PICTURE)
    pictures.draw_builders(rows, _GROWTH)


if __name__ == "__main__":
    typer.run(main)
