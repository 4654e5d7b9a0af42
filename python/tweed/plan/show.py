"""A plan for people: predicted times and picks as tables."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table as Grid

from tweed.plan.making import Planned
from tweed.plan.table import Table, Time


def planned(made: Planned, console: Console) -> None:
    """Prints a table of times for each collective that was predicted, and the rows of the plan for it."""
    for table in made.tables.values():
        console.print(_times(table))
        for pick in made.plan.picks:
            if pick.collective == table.collective:
                upto = "larger" if pick.up_to_bytes is None else f"up to {size(pick.up_to_bytes)}"
                console.print(f"  {upto}: {pick.builder}", highlight=False)


def _times(table: Table) -> Grid:
    title = f"{table.collective} on {table.topology.name or 'the network'}: predicted times"
    grid = Grid(title=title, title_justify="left")
    grid.add_column("builder")
    for numbytes in sorted(table.times):
        grid.add_column(size(numbytes), justify="right")
    for place, one in enumerate(table.candidates):
        cells = [_cell(table, numbytes, place) for numbytes in sorted(table.times)]
        grid.add_row(str(one), *cells)
    return grid


def _cell(table: Table, numbytes: int, place: int) -> str:
    time, choice, one = table.times[numbytes][place], table.choose(numbytes), table.candidates[place]
    picked = (choice.builder, choice.pieces) == (one.builder, one.pieces)
    return f"[bold green]{_seconds(time)}[/]" if picked else _seconds(time)


def _seconds(time: Time) -> str:
    text = f"{time.seconds * 1e3:.3g} ms" if time.seconds < 1 else f"{time.seconds:.3g} s"
    return text if time.exact else f"> {text}"


def size(numbytes: int) -> str:
    """ "64 KiB"."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if numbytes >= factor:
            return f"{numbytes / factor:.4g} {unit}"
    return f"{numbytes} B"
