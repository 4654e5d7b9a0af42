"""A plan for people: picks with their reasons, the front, and all predicted times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table as Grid

from tweed.collective.chooser import label
from tweed.collective.planning.making import Planned
from tweed.collective.planning.table import Table, Time, Verdict

_WHY = '"why", a link is busy: the busiest link of the pick, as a share of the predicted time'


def planned(made: Planned, console: Console, *, everything: bool = False) -> None:
    """Prints, for each collective that was predicted, the picks, the front and, if asked for, all times."""
    for table in made.tables.values():
        console.print(_picks(table))
        limit = table.verdict(max(table.times))
        what = f"The bound at {size(limit.numbytes)}: {limit.limit}. In {_WHY}."
        console.print(what, soft_wrap=True, highlight=False, markup=False)
        console.print(_front(table))
        if everything:
            console.print(_times(table))
        for name, why in table.refused.items():
            console.print(f"not {name}: {why}", soft_wrap=True, highlight=False, markup=False)
        console.print()


def plain(made: Planned) -> dict[str, Any]:
    """All figures for JSON: by collective, picks with their reasons, every candidate's times, the front."""
    return {name: _plain(table) for name, table in made.tables.items()}


def _plain(table: Table) -> dict[str, Any]:
    front = table.front()
    sizes = sorted(table.times)
    return {
        "network": table.topology.name,
        "ranks": table.topology.ranks,
        "host": asdict(table.host),
        "sizes": [_plain_verdict(table.verdict(numbytes)) for numbytes in sizes],
        "builders": [
            {
                "builder": one.builder,
                "pieces": one.pieces,
                "steps": one.schedule.cost(0).steps,
                "sends": len(one.schedule),
                "front": place in front,
                "times": {numbytes: asdict(table.times[numbytes][place]) for numbytes in sizes},
            }
            for place, one in enumerate(table.candidates)
        ],
        "refused": dict(table.refused),
    }


def _plain_verdict(one: Verdict) -> dict[str, Any]:
    return {
        "bytes": one.numbytes,
        "builder": one.choice.builder,
        "pieces": one.choice.pieces,
        "seconds": one.seconds,
        "bound_s": one.bound_s,
        "limit": one.limit,
        "busy": one.busy,
        "why": one.reason,
    }


def _picks(table: Table) -> Grid:
    title = f"{table.collective} on {table.topology.name or 'this network'}, {table.topology.ranks} ranks"
    grid = _grid(title, ["size", "pick", "predicted", "bound", "reached"], ["why"])
    for numbytes in sorted(table.times):
        grid.add_row(*_verdict(table.verdict(numbytes)))
    return grid


def _verdict(one: Verdict) -> Sequence[str]:
    picked = label(one.choice.builder, one.choice.pieces)
    reached = f"{100 * one.bound_s / one.seconds:.0f}%"
    return size(one.numbytes), picked, seconds(one.seconds), seconds(one.bound_s), reached, one.reason


def _front(table: Table) -> Grid:
    small, large = min(table.times), max(table.times)
    names = ["builder", f"{size(small)} take", f"{size(large)} go at", "steps", "sends"]
    grid = _grid("Front of latency and bandwidth", names, [])
    for place in table.front():
        one, least, most = table.candidates[place], table.times[small][place], table.times[large][place]
        steps = one.schedule.cost(0).steps
        grid.add_row(
            str(one), seconds(least.seconds), speed(large / most.seconds), str(steps), str(len(one.schedule))
        )
    return grid


def _times(table: Table) -> Grid:
    sizes = sorted(table.times)
    grid = _grid(
        "Predicted times; with >, only what the busiest link or the ranks take",
        ["builder", *map(size, sizes)],
        [],
    )
    for place, one in enumerate(table.candidates):
        grid.add_row(str(one), *(time(table.times[numbytes][place]) for numbytes in sizes))
    return grid


def _grid(title: str, columns: Sequence[str], wide: Sequence[str]) -> Grid:
    grid = Grid(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for name in columns:
        grid.add_column(name, justify="right", no_wrap=True)
    for name in wide:
        grid.add_column(name)
    return grid


def time(one: Time) -> str:
    """ "1.2 ms", or "> 1.2 ms"."""
    return seconds(one.seconds) if one.exact else f"> {seconds(one.seconds)}"


def seconds(value: float) -> str:
    """Seconds in words, such as "1.2 ms"."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value * 1e6:.3g} us"


def speed(value: float) -> str:
    """Bytes per second: "125 MB/s"."""
    for unit, factor in (("GB/s", 1e9), ("MB/s", 1e6)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value / 1e3:.3g} kB/s"


def size(numbytes: int) -> str:
    """Bytes in words, such as "64 KiB"."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if numbytes >= factor:
            return f"{numbytes / factor:.4g} {unit}"
    return f"{numbytes} B"
