"""`tweed plan`: which schedule for which size on a network, what it is predicted to take, and why."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from tweed.errors import UsageError
from tweed.files import write_atomic

if TYPE_CHECKING:
    from tweed._core import Topology
    from tweed.collective.planning import Host, Planned
    from tweed.doctor.together import Report

_UNITS = {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10, "GB": 10**9, "MB": 10**6, "KB": 10**3, "B": 1}


def plan(
    network: Annotated[
        Path | None,
        typer.Argument(help="A file: a network (docs/topology.md), or what tweed doctor --output wrote."),
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure between torchrun's ranks, or those of --ranks.")
    ] = False,
    ranks: Annotated[int | None, typer.Option(help="With --measure: start so many on this machine.")] = None,
    testbed: Annotated[
        str | None, typer.Option(help="With --ranks: put them into a network: rate=100mbit,rtt=20ms.")
    ] = None,
    collective: Annotated[
        list[str] | None, typer.Option(help="Predict this one only; may be given several times.")
    ] = None,
    builder: Annotated[
        list[str] | None, typer.Option(help="Try this builder only; may be given several times.")
    ] = None,
    sizes: Annotated[
        str | None, typer.Option(help="Sizes of the whole buffer, such as 1KiB,64KiB,25MB.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Show the times of all builders.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw it to this file, .svg or .png.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON instead.")] = False,
    out: Annotated[Path | None, typer.Option(help="Store the plan here, for TWEED_PLAN.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the network that was measured here.")] = None,
) -> None:
    """Try every builder on a network in the simulator; show predicted times and picks, and store the plan.

    A group runs it when rank 0 is given it: TWEED_PLAN=plan.json torchrun ...
    To measure a job's network: torchrun ... --no-python tweed plan --measure --out plan.json
    """
    if (network is None) != measure:
        raise UsageError("give either a file that describes the network, or --measure")
    if not measure and (ranks, testbed, save) != (None, None, None):
        raise UsageError("--ranks, --testbed and --save belong to --measure")
    for path in (out, plot, save):
        if path is not None and not path.parent.is_dir():
            raise UsageError(f"cannot write {path}: there is no folder {path.parent}")
    asked = None if sizes is None else [_size(part.strip()) for part in sizes.split(",")]
    try:
        found = _measured(ranks, testbed) if network is None else _read(network)
        planned = None if found is None else _make(*found, collective, asked, builder)
    except KeyboardInterrupt:
        typer.echo("Stopped.", err=True)
        raise typer.Exit(130) from None
    if planned is not None:
        _store(planned, out, plot, save)
        _show(planned, as_json, everything, out)


def _read(path: Path) -> tuple[Topology, Host]:
    from tweed.collective.planning import network_file as network

    return network.read(path)


def _measured(ranks: int | None, testbed: str | None) -> tuple[Topology, Host] | None:
    """The network between ranks; None on all ranks of torchrun's but the first."""
    from tweed.collective.planning import network_file as network

    report = _visit(ranks, testbed)
    if report is None:
        return None
    if report.matrix is None:
        worst = "; ".join(f"{one.what} ({one.fix})" for one in report.findings if one.level.name == "ERROR")
        raise UsageError(f"the network could not be measured: {worst or 'see tweed doctor'}")
    return network.measured(report.matrix.plain()), network.PAYLOAD


def _visit(ranks: int | None, testbed: str | None) -> Report | None:
    from tweed.doctor.together import on_this_machine, under_torchrun
    from tweed.testbed import Network
    from tweed.train.world import launched_ranks

    if ranks is None and launched_ranks() is None:
        raise UsageError(
            "--measure runs under torchrun (torchrun ... --no-python tweed plan), or with --ranks 4"
        )
    if ranks is None:
        return under_torchrun()
    if "RANK" in os.environ:
        raise UsageError("torchrun has started the ranks already; omit --ranks and --testbed")
    if ranks < 2:
        raise UsageError(f"nothing can be measured between {ranks} ranks: give --ranks 2 or more")
    return on_this_machine(ranks, None if testbed is None else Network.parse(testbed))


def _make(
    network: Topology,
    host: Host,
    collectives: list[str] | None,
    sizes: list[int] | None,
    builders: list[str] | None,
) -> Planned:
    from tweed.collective.planning import SIZES, make
    from tweed.collective.planning.candidates import ROOTLESS

    with Console(stderr=True).status("") as status:
        return make(network, collectives or ROOTLESS, sizes or SIZES, host, builders or (), status.update)


def _store(planned: Planned, out: Path | None, plot: Path | None, save: Path | None) -> None:
    from tweed.collective import topology
    from tweed.report import plan_picture as picture

    if plot is not None:
        picture.write(planned, plot)
    try:
        if out is not None:
            write_atomic(out, planned.plan.to_json() + "\n")
        if save is not None and planned.plan.topology is not None:
            topology.write(planned.plan.topology, save)
    except OSError as error:
        raise UsageError(f"cannot write {error.filename}: {error.strerror}") from None


def _show(planned: Planned, as_json: bool, everything: bool, out: Path | None) -> None:
    from tweed.report import plan_tables as show

    if as_json:
        typer.echo(json.dumps(show.plain(planned), indent=1))
        return
    console = Console()
    show.planned(planned, console, everything=everything)
    if out is not None:
        console.print(f"Stored. A group runs it with TWEED_PLAN={out}", soft_wrap=True, highlight=False)


def _size(text: str) -> int:
    unit = next((unit for unit in _UNITS if text.lower().endswith(unit.lower())), None)
    number = text[: len(text) - len(unit)] if unit else text
    try:
        found = round(float(number) * _UNITS[unit or "B"])
    except (ValueError, OverflowError):
        found = 0
    if found < 1:
        raise UsageError(f"cannot read the size {text!r}: write it like 64KiB, 25MB or 1000")
    return found
