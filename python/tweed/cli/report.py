"""`tweed report`: the page of a stored run, or of several beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tweed.errors import UsageError

_RUNS = Path("runs")


def report(
    runs: Annotated[list[str], typer.Argument(help="Names of runs in runs/, or paths of their folders.")],
    compare: Annotated[
        bool, typer.Option("--compare", help="Put all of these runs beside each other, on one page.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Where the page of a comparison goes.", dir_okay=False)] = _RUNS
    / "compared.html",
) -> None:
    """Write a run's report again, or compare runs: what each took to the same accuracy, what differs."""
    from tweed.report import compared
    from tweed.report.page import write

    folders = [Path(run) if Path(run).is_dir() else _RUNS / run for run in runs]
    if compare:
        typer.echo(f"Report: {compared.write(folders, out)}")
        return
    if len(folders) > 1:
        raise UsageError("several runs go onto one page with --compare")
    typer.echo(f"Report: {write(folders[0])}")
