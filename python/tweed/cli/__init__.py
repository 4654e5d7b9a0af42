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
    epilog="Begin with `tweed train`: four workers of this machine train a small model, in a minute or two, "
    "and write a report. `tweed COMMAND --help` has the options of a command.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
)
app.command("train", short_help="Train a model on several workers, and report.")(train.train)
app.command("launch", short_help="Start a script on several hosts over ssh.", cls=launch.Launched)(
    launch.launch
)
app.command("serve", short_help="Be a hub: hold a model that members train.")(hub.serve)
app.command("join", short_help="Train as a member of a hub.")(hub.join)
app.command("witness", short_help="Vote on who is a member of an elastic run.")(witness.witness)
app.command("reproduce", short_help="Measure a published system beside its peers.")(reproduce.reproduce)
app.command("strategies", short_help="List the strategies that have a name.")(strategies.strategies)
app.command("report", short_help="Write a report again, or compare runs.")(report.report)
app.command("plan", short_help="Find the quickest schedules for a network.")(plan.plan)
app.command("doctor", short_help="Say what is wrong with a host or its links.")(doctor.doctor)
app.command("top", short_help="Show what a run does, live.")(top.top)
app.add_typer(data.app, name="data")


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"tweed {distribution.version() or '(not installed)'}")
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
