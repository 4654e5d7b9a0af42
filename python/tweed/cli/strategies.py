"""`tweed strategies`: what `--strategy` and `tweed.attach` take by name."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text


def strategies() -> None:
    """List the strategies that have a name: what each does, and when to take it."""
    from tweed.recipes.named import described_strategies

    table = Table(
        "name and settings", "what", "when to take it", box=None, pad_edge=False, padding=(0, 2, 1, 0)
    )
    for column, ratio in zip(table.columns, (2, 3, 2), strict=True):
        column.ratio, column.overflow = ratio, "fold"
    for row in described_strategies():
        table.add_row(*map(Text, row))
    Console().print(table)
    typer.echo('Write tweed.attach(model, optimizer, "local_steps:8"),')
    typer.echo("or tweed train --strategy local_steps:8.")
    typer.echo('Several go together where they set different stages: "sparse + ltp(server=0)".')
