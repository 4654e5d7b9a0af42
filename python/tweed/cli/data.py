"""`tweed data`: which data sets there are, and getting them."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="Data sets for the training tasks.", no_args_is_help=True)


@app.command("list")
def show() -> None:
    """List the data sets, and which are in the cache."""
    from tweed.data import SETS
    from tweed.data.sets import damage
    from tweed.files import cache

    for name, entry in SETS.items():
        wrong = damage(cache() / "data" / name, entry.FILES)
        typer.echo(f"{name:15} {'not in the cache' if wrong else 'in the cache':18} {entry.ABOUT}")
    typer.echo(f"The cache is {cache()}; TWEED_CACHE moves it.")


@app.command("get")
def fetch(name: Annotated[str, typer.Argument(help="A name from `tweed data list`.")]) -> None:
    """Find a data set, check it, and keep it in the cache."""
    from tweed.data import get

    typer.echo(f"{name}: in {get(name, typer.echo)}")
