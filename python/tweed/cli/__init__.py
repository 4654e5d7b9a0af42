"""The command `tweed`. Light to import: torch is loaded when a command needs it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tweed import distribution
from tweed.cli import data, doctor, hub, launch, plan, report, reproduce, strategies, top, train, witness
from tweed.errors import TweedError, UsageError

app = typer.Typer(
    help="Train PyTorch models across machines whose network is slow, lossy, uneven or untrusted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
)
app.command("train")(train.train)
app.command("launch", cls=launch.Launched)(launch.launch)
app.command("serve")(hub.serve)
app.command("join")(hub.join)
app.command("witness")(witness.witness)
app.command("reproduce")(reproduce.reproduce)
app.command("strategies")(strategies.strategies)
app.command("report")(report.report)
app.command("plan")(plan.plan)
app.command("doctor")(doctor.doctor)
app.command("top")(top.top)
app.add_typer(data.app, name="data")


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"tweed {distribution.version()}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print it and leave.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


def main() -> None:
    """Runs the command line. Errors of tweed's own kind are one message and an exit code, 2 for wrong use."""
    try:
        app(prog_name="tweed")
    except TweedError as error:
        typer.echo(f"tweed: {error}", err=True)
        sys.exit(2 if isinstance(error, UsageError) else 1)
