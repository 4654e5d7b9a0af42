"""`tweed serve` and `tweed join`: a task behind a hub that members reach when they like."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def serve(
    task: Annotated[str, typer.Argument(help="fashion-mnist, digits or shakespeare.")],
    strategy: Annotated[str, typer.Option(help="One with a hub: teasq, mlfabric.")] = "teasq",
    listen: Annotated[
        str | None, typer.Option(help="HOST:PORT for members. Default: a free port of this machine alone.")
    ] = None,
    commits: Annotated[int | None, typer.Option(help="Training ends after so many updates.")] = None,
    parts: Annotated[int, typer.Option(help="Into how many parts the data is dealt.")] = 4,
    fewest: Annotated[int, typer.Option(min=1, help="Begin when so many members are there.")] = 1,
    most: Annotated[int | None, typer.Option(min=1, help="So many members at a time.")] = None,
    members: Annotated[
        Path | None, typer.Option(help="A file with the keys of those that may come, one per line.")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Samples per member and step.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate of the members.")] = None,
    hub_lr: Annotated[float | None, typer.Option(help="Learning rate of the hub's SGD.")] = None,
    seed: Annotated[int, typer.Option(help="Decides model, partition and batches.")] = 0,
    partition: Annotated[str, typer.Option(help="iid, by_label, shards:N or dirichlet:A.")] = "iid",
    replica_key: Annotated[
        list[str] | None,
        typer.Option(help="Key of a process that may be this hub's standby; may be repeated."),
    ] = None,
    replica_of: Annotated[
        str | None, typer.Option(help="KEY@HOST:PORT of a hub: be its standby, with its options.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run; its folder is runs/NAME.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run called --name.")] = False,
    log: Annotated[
        bool, typer.Option("--log", help="Keep all that members send, so that the run can be replayed.")
    ] = False,
) -> None:
    """Hold a model that members train when they can; write metrics and a report to runs/NAME.

    Prints the line that members type. Other machines need the same TWEED_SECRET, and the hub's address in
    the place of 0.0.0.0 or 127.0.0.1. Ctrl-C ends the hub; `--name NAME --resume` goes on from the last
    checkpoint. A standby follows another hub, and takes over when that is gone; the hub has to list its key,
    which is in the error if it does not.
    """
    from tweed.cli.train import RUNS
    from tweed.report.page import write
    from tweed.train.hub_task import Admission, HubTask, with_hub
    from tweed.train.request import Request, begin

    options: dict[str, str | float | None] = {
        "task": task,
        "strategy": strategy,
        "steps": commits,
        "workers": parts,
        "seed": seed,
    }
    options |= {"batch_size": batch_size, "lr": lr, "partition": partition}
    given = {key: value for key, value in options.items() if value is not None}
    with_hub(strategy)
    listed = None if members is None else _keys(members)
    request = Request(given, name=name, resume=resume, argv=["tweed", *sys.argv[1:]])
    settings, folder = begin(request, RUNS, typer.echo)
    admission = Admission(listen, listed, most, fewest, tuple(replica_key or ()), replica_of)
    hub = HubTask(settings, folder, admission, hub_lr, log)
    if replica_of is None:
        typer.echo(f"Members type: tweed join {hub.run.address}")
    else:
        typer.echo(f"Standby of {replica_of}, at {hub.run.address}")
    typer.echo(f"{settings.task} by {strategy}, {settings.steps} commits. Folder: {folder.path}")
    try:
        hub.serve(
            lambda row: typer.echo(
                f"commit {row['step']}: accuracy {row['accuracy']:.1%}, test loss {row['test_loss']:.3f}, "
                f"{len(hub.run.members)} members, {row['seconds']:.0f} s"
            )
        )
    except KeyboardInterrupt:
        advice = f"tweed serve {task} --name {folder.path.name} --resume"
        typer.echo(f"Stopped. To go on from the last checkpoint, at the same address: {advice}", err=True)
        raise typer.Exit(130) from None
    finally:
        hub.run.detach()
    typer.echo(f"Report: {write(folder.path)}")


def join(
    hub: Annotated[str, typer.Argument(help="KEY@HOST:PORT, as `tweed serve` prints it.")],
    key_file: Annotated[
        str | None, typer.Option(help="Keeps this member's key: the hub knows it when it comes back.")
    ] = None,
    aggregator: Annotated[
        bool, typer.Option("--aggregator", help="Add up what other members send, and hand on the model.")
    ] = False,
    listen: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT where others reach an aggregator; else as this machine reaches the hub."
        ),
    ] = None,
) -> None:
    """Train as a member of a hub, on a part of the data, until the hub ends it. Ctrl-C leaves."""
    from tweed.errors import UsageError
    from tweed.train.hub_task import join as join_hub

    if listen is not None and not aggregator:
        raise UsageError(f"--listen {listen}: only an aggregator is called by others; add --aggregator")

    def show(step: int, loss: float) -> None:
        typer.echo(f"step {step}: loss {loss:.3f}")

    try:
        steps = join_hub(hub, key_file, (listen or True) if aggregator else False, show, typer.echo)
    except KeyboardInterrupt:
        typer.echo("Left; the hub goes on without this member.", err=True)
        raise typer.Exit(130) from None
    typer.echo(f"The hub has ended training after {steps} steps here.")


def _keys(path: Path) -> list[str]:
    """The keys in a file, one per line; what follows `#` is for people."""
    from tweed.errors import UsageError

    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise UsageError(f"the list of members cannot be read: {error}") from None
    return [key for line in lines if (key := line.split("#")[0].strip())]
