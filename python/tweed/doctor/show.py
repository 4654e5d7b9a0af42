"""Findings and figures for people. Lines are not folded: a command must survive being copied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tweed.doctor.finding import Finding, Level, worst_first
from tweed.doctor.matrix import Link, Matrix

_STYLES = {Level.ERROR: "bold red", Level.WARNING: "yellow", Level.NOTE: "cyan", Level.OK: "green"}
_MARGIN = 24  # level and subject


def findings(found: Sequence[Finding], console: Console) -> None:
    """Prints findings, the worst first, each with its fix; then how many there are of each level."""
    for one in worst_first(found):
        line = Text.assemble(
            (f"{one.level.name.lower():<9}", _STYLES[one.level]),
            (f"{one.subject:<{_MARGIN - 9}}", "bold"),
            f"{one.host}: " if one.host else "",
            one.what,
        )
        console.print(line, soft_wrap=True, highlight=False)
        if one.fix:
            console.print(Text(f"{'':<{_MARGIN}}> {one.fix}"), soft_wrap=True, highlight=False)
    console.print(summary(found), highlight=False)


def summary(found: Sequence[Finding]) -> str:
    """One line: "1 error, 2 warnings, 3 notes, 9 in order"."""
    counts = Counter(one.level for one in found)
    words = [
        f"{counts[level]} {level.name.lower()}{'' if counts[level] == 1 else 's'}"
        for level in (Level.ERROR, Level.WARNING, Level.NOTE)
        if counts[level]
    ]
    return ", ".join([*words, f"{counts[Level.OK]} in order"])


def matrix(measured: Matrix, console: Console) -> None:
    """Prints who is who, and a table with a cell per pair: from the row's rank to the column's."""
    for member in measured.members:
        off = "" if member.clock_s is None else f", clock {member.clock_s * 1000:+.1f} ms"
        line = f"rank {member.rank}: {member.host} at {member.address}{off}"
        console.print(line, soft_wrap=True, highlight=False)
    table = Table(title="Mbit/s; round trip in ms: median, 99th percentile", title_justify="left")
    table.add_column("from \\ to")
    for member in measured.members:
        table.add_column(str(member.rank), justify="right")
    links = {(link.src, link.dst): link for link in measured.links}
    for src in range(len(measured.members)):
        cells = [_cell(links.get((src, dst))) for dst in range(len(measured.members))]
        table.add_row(str(src), *cells)
    console.print(table)


def _cell(link: Link | None) -> str:
    if link is None:
        return ""
    speed = f"{link.bandwidth * 8 / 1e6:,.1f} {link.via}"
    trips = f"{link.rtt_median_s * 1000:.2f}, {link.rtt_p99_s * 1000:.2f}"
    again = f"\n{link.sent_again:.1%} sent again" if link.sent_again else ""
    return f"{speed}\n{trips}{again}"
