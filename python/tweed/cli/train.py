"""`tweed train`: one job, on this machine's processes, on a Ray cluster, or as a worker of torchrun."""

from __future__ import annotations

import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer
from rich.console import Console

from tweed.errors import UsageError

if TYPE_CHECKING:
    from tweed.train.elastic_worker import Entered
    from tweed.train.folder import RunFolder
    from tweed.train.launch import Show
    from tweed.train.request import Request
    from tweed.train.settings import Settings

RUNS = Path("runs")


def train(
    task: Annotated[str | None, typer.Option(help="fashion-mnist (default), digits, shakespeare.")] = None,
    workers: Annotated[int | None, typer.Option(help="Number of worker processes. Default: 4.")] = None,
    strategy: Annotated[
        str | None, typer.Option(help="every_step (default), local_steps:8, ltp and so on.")
    ] = None,
    against: Annotated[str | None, typer.Option(help="Train a peer too, for comparison: ddp-gloo.")] = None,
    steps: Annotated[int | None, typer.Option(help="Optimizer steps of each side.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Passes over the data, instead of --steps.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Samples per worker and step.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate at the start.")] = None,
    seed: Annotated[int | None, typer.Option(help="Decides model, partition and batches.")] = None,
    partition: Annotated[
        str | None, typer.Option(help="iid (default), by_label, shards:N or dirichlet:A.")
    ] = None,
    backend: Annotated[str | None, typer.Option(help="Torch backend of our side: tweed or gloo.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run; its folder is runs/NAME.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run called --name.")] = False,
    fallback: Annotated[str | None, typer.Option(help="Task to take if the data is not to be had.")] = None,
    network: Annotated[
        str | None, typer.Option(help="Put each worker behind a link like rate=100mbit,loss=0.1%.")
    ] = None,
    deadline: Annotated[
        float | None, typer.Option(min=0.001, help="How late a step may be, in seconds (docs/deadlines.md).")
    ] = None,
    or_unshaped: Annotated[
        bool, typer.Option("--or-unshaped", help="Go on without --network where it cannot be built.")
    ] = False,
    ray: Annotated[
        str | None, typer.Option(help="Let Ray place the workers: HOST:PORT of a cluster's head, or auto.")
    ] = None,
    restarts: Annotated[
        int, typer.Option(min=0, help="With --ray: how often all may start anew after one failed.")
    ] = 0,
    elastic: Annotated[
        str | None,
        typer.Option(help="LEAST:MOST workers, such as 2:8, which may be lost and join (docs/elastic.md)."),
    ] = None,
    join: Annotated[
        str | None,
        typer.Option(help="Be one more worker of an --elastic run: HOST:PORT of any of its workers."),
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write metrics of the links to runs/NAME/tensorboard.")
    ] = False,
) -> None:
    """Train a real model on several workers; write metrics and a report to runs/NAME.

    The workers are processes of this machine, or those that Ray places, or torchrun's if torchrun started
    this command.
    """
    from tweed.recipes.named import named_strategy
    from tweed.testbed import Network
    from tweed.train.request import Request
    from tweed.train.world import launched_ranks

    options: dict[str, str | float | None] = {"task": task, "workers": workers, "strategy": strategy}
    options |= {"against": against, "steps": steps, "batch_size": batch_size, "lr": lr, "seed": seed}
    options |= {"partition": partition, "backend": backend}
    options |= {"network": None if network is None else str(Network.parse(network))}
    if deadline is not None:  # no part of the settings: it changes no number, and may change on --resume
        os.environ["TWEED_DEADLINE"] = str(deadline)
    given = {key: value for key, value in options.items() if value is not None}
    request = Request(given, epochs, name, resume, fallback, or_unshaped, ["tweed", *sys.argv[1:]])
    if restarts and ray is None:
        raise UsageError("--restarts is for workers that Ray places: give --ray too")
    if strategy is not None and named_strategy(strategy).hub is not None:
        raise UsageError(
            f"{strategy} has a hub, which workers reach when they like, and in `tweed train` all take steps "
            f"together: run `tweed serve {task or 'TASK'} --strategy {strategy}`, and as many `tweed join`"
        )
    size = launched_ranks()
    if join is not None or elastic is not None:
        _check_elastic(elastic, join, request, size is not None or ray is not None)
    if join is not None:
        try:
            _joined(join, Console())
        except KeyboardInterrupt:  # before the loop, or once more while it leaves
            typer.echo("Stopped; the others go on without this worker.", err=True)
            raise typer.Exit(130) from None
    elif elastic is not None:
        _with_members(request, elastic, tensorboard, Console())
    elif ray is not None:
        _on_ray(request, ray, restarts, tensorboard, Console())
    elif size is None:
        from tweed.train import launch

        _alone(request, launch, tensorboard, Console())
    else:
        _under_torchrun(request.with_workers(size), tensorboard, Console())


class Launcher(Protocol):
    """Starts the workers of a run that this process shows."""

    def prepare(self) -> None:
        """Called while others wait for nothing."""

    def launch(self, settings: Settings, folder: RunFolder, show: Show) -> None:
        """Trains all sides from where they were left, and calls `show` with figures as they come."""


def _check_elastic(elastic: str | None, join: str | None, request: Request, is_placed: bool) -> None:
    if is_placed:
        raise UsageError(
            "--elastic and --join start processes of their own, and torchrun and Ray end all workers when "
            "one dies: run `tweed train` without them"
        )
    if join is not None and (elastic or request.given or request.name or request.epochs or request.resume):
        raise UsageError("--join takes all settings from the run that it joins: omit the other options")


def _with_members(request: Request, elastic: str, tensorboard: bool, console: Console) -> None:
    from tweed.train.elastic_launch import ElasticLauncher
    from tweed.train.request import fill

    def note(line: str) -> None:
        typer.echo(line, err=True)

    if not request.resume:
        launcher = ElasticLauncher.parse(elastic, note)
        launcher.check(fill(request.given))
    else:  # any number of workers goes on with the batch that the run has
        launcher = ElasticLauncher.parse(elastic, note, request.given.get("workers"))
        given = {name: value for name, value in request.given.items() if name != "workers"}
        request = replace(request, given=given)
    _alone(request, launcher, tensorboard, console, f" --elastic {elastic}")


def _joined(address: str, console: Console) -> None:
    from tweed.train.display import display
    from tweed.train.elastic_launch import joined, trains

    settings, folder, control = joined(address, RUNS, ["tweed", *sys.argv[1:]])
    _head(console, settings, folder)

    def noted(entered: Entered) -> None:
        where = f"One of {entered.members} members from step {entered.step} on, in epoch {entered.epoch}."
        console.print(where, highlight=False)

    with display(settings, console) as view:
        worker = trains(settings, folder, control, view.show, noted)
    if not worker.done:
        console.print("Left in good order; the others go on.")
        raise typer.Exit(130 if worker.interrupted else 0)
    if folder.figures():
        _finish(console, settings, folder)
    else:
        console.print("The run is over.")


def _on_ray(request: Request, address: str, restarts: int, tensorboard: bool, console: Console) -> None:
    from tweed.train.on_ray import OnRay, connected

    if request.given.get("network") is not None:
        raise UsageError("--network starts its own workers: omit --network or --ray")
    with connected(address) as nodes:
        _alone(replace(request, spread=nodes > 1), OnRay(restarts), tensorboard, console)


def _alone(
    request: Request, launcher: Launcher, tensorboard: bool, console: Console, options: str = ""
) -> None:
    """`options` are needed to go on with the run."""
    from tweed.testbed import RankFailed
    from tweed.train.display import display
    from tweed.train.request import begin

    settings, folder = begin(request, RUNS, typer.echo)
    _head(console, settings, folder)
    if tensorboard:
        _ask_for_events(folder)
    try:
        launcher.prepare()
        with display(settings, console) as view:
            launcher.launch(settings, folder, view.show)
    except KeyboardInterrupt:
        typer.echo(f"Stopped; all workers are gone. {_advice(settings, folder, options)}", err=True)
        raise typer.Exit(130) from None
    except RankFailed:
        typer.echo(
            f"A worker failed, and all others were ended. {_advice(settings, folder, options)}", err=True
        )
        raise
    _finish(console, settings, folder)


def _advice(settings: Settings, folder: RunFolder, options: str) -> str:
    from tweed.train.folder import latest

    stored = any(latest(folder.checkpoints(side)) for side in settings.sides)
    what = "To go on from the last checkpoint" if stored else "There is no checkpoint yet. To begin anew"
    return f"{what}: tweed train --name {folder.path.name} --resume{options}"


def _ask_for_events(folder: RunFolder) -> None:
    """Tells this process, and those that it starts. Raises: UsageError if the package is missing."""
    from tweed.metrics import MetricsOptions

    events = str(folder.path / "tensorboard")
    MetricsOptions(tensorboard=events)
    os.environ["TWEED_TENSORBOARD"] = events


def _under_torchrun(request: Request, tensorboard: bool, console: Console) -> None:
    from tweed.train.display import display
    from tweed.train.request import begin
    from tweed.train.torchrun import take_part

    def opened() -> tuple[Settings, RunFolder]:
        settings, folder = begin(request, RUNS, typer.echo)
        _head(console, settings, folder)
        if tensorboard:
            _ask_for_events(folder)
        return settings, folder

    settings, folder, rank = take_part(opened, lambda settings: display(settings, console))
    if rank == 0:
        _finish(console, settings, folder)


def _head(console: Console, settings: Settings, folder: RunFolder) -> None:
    sides = " against ".join(settings.sides.values())
    server = "" if settings.server is None else f" and a server (rank {settings.server})"
    job = f"{settings.task}, {settings.workers} workers{server}, {settings.steps} steps: {sides}"
    network = _how_long(settings) if settings.links is None else f"Network: {settings.links.words}."
    console.print(f"{job}. {network} Folder: {folder.path}", soft_wrap=True, highlight=False)


def _how_long(settings: Settings) -> str:
    """Roughly, on this machine, where computing is what takes time. Processes take some seconds to start."""
    from tweed.train.tasks import row

    spent_s = settings.steps * settings.workers * row(settings.task).step_s * len(settings.sides)
    minutes = math.ceil((spent_s / min(len(os.sched_getaffinity(0)), settings.workers) + 10) / 60)
    return f"This takes about {minutes} min where nothing else runs."


def _finish(console: Console, settings: Settings, folder: RunFolder) -> None:
    from tweed.report.page import write
    from tweed.train.results import by_side, summary

    for table in summary(by_side(settings.sides, folder.figures())):
        console.print(table)
    for finding in folder.findings():
        console.print(f"Something is wrong with the network: {finding}", soft_wrap=True, highlight=False)
    try:
        page = f"Report: {write(folder.path)}"
    except OSError as error:
        page = f"The report is not written: {error}. `tweed report {folder.path}` writes it"
    console.print(page, soft_wrap=True, highlight=False)
