"""All-gathers, reduce-scatters and all-reduces between sites, beside what no schedule can beat. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from tweed.report.notes import Line, find
from tweed.report.study import Section, Table
from tweed.systems.multitree.schedules import BEST, LARGE, PHASES, SITED, UNEVEN, Cell, Times, ratio

WORDS = {"all_reduce": "All-reduce", "all_gather": "All-gather", "reduce_scatter": "Reduce-scatter"}


def over(lines: Sequence[Line], times: Times, cell: Cell) -> float | None:
    """How many times the bound 64 MiB take; None if it was not measured."""
    bound = find(lines, kind="bound", network=cell.network, collective=cell.collective)
    least = None if bound is None else max(bound["cut"], bound["links"])
    return ratio(times.share(cell, LARGE), least)


def decimals(value: float | None) -> str:
    """With three digits; a dash for what is not known."""
    return "–" if value is None else f"{value:.3f}"


def beside_bounds(lines: Sequence[Line], times: Times) -> Iterator[Section]:
    """A section for the phases, one for uneven networks, one for sites; without tables where nothing is."""
    even = [_table(lines, times, collective, _even(times, collective)) for collective in PHASES]
    yield Section("All-gather and reduce-scatter beside the bound", tables=[one for one in even if one.rows])
    drawn = [_drawn(lines, times, collective) for collective in PHASES]
    words = [
        "Each direction of a link has all, half or a quarter of its bandwidth, by chance: median and worst."
    ]
    tables = [one for one in drawn if one.rows]
    yield Section("Behind switches, with uneven links", words if tables else (), tables=tables)
    sited = _table(lines, times, "all_reduce", [name for name in times.networks() if name in SITED])
    yield Section("All-reduce between sites", tables=[sited] if sited.rows else [])


def _even(times: Times, collective: str) -> list[str]:
    return [name for name in times.networks(collective) if name not in UNEVEN]


def _builders(times: Times, collective: str, names: Sequence[str]) -> list[str]:
    sides = dict.fromkeys(side for name in names for side in times.builders(name, collective))
    return [*(side for side in sides if side != BEST), BEST]


def _table(lines: Sequence[Line], times: Times, collective: str, names: Sequence[str]) -> Table:
    """A row per network."""
    builders = _builders(times, collective, names)
    rows = []
    for name in names:
        found = [over(lines, times, Cell(name, collective, side)) for side in builders]
        bound = find(lines, kind="bound", network=name, collective=collective) or {}
        rows.append([name, *map(decimals, found), bound.get("why", "")])
    title = f"{WORDS[collective]} of 64 MiB: time over the bound"
    return Table(title, ["", *builders, "what limits"], rows)


def _drawn(lines: Sequence[Line], times: Times, collective: str) -> Table:
    """A row per kind of network: the median over its draws, and the worst."""
    names = [name for name in times.networks(collective) if name in UNEVEN]
    builders = _builders(times, collective, names)
    rows = []
    for kind in dict.fromkeys(map(_kind, names)):
        draws = [name for name in names if _kind(name) == kind]
        cells = []
        for side in builders:
            found = [over(lines, times, Cell(name, collective, side)) for name in draws]
            known = [factor for factor in found if factor is not None]
            cells.append(f"{statistics.median(known):.3f} ({max(known):.3f})" if known else "–")
        rows.append([f"{kind}, {len(draws)} draws", *cells])
    return Table(f"{WORDS[collective]} of 64 MiB: time over the bound", ["", *builders], rows)


def _kind(name: str) -> str:
    return name.rpartition(", seed ")[0]
