"""`tweed plan`: which schedule for which size on a network, what it is predicted to take, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from tweed.errors import UsageError

if TYPE_CHECKING:
    from tweed.plan import Planned

_UNITS = {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10, "GB": 10**9, "MB": 10**6, "KB": 10**3, "B": 1}


def plan(
    network: Annotated[Path, typer.Argument(help="A file that describes the network (docs/topology.md).")],
    collective: Annotated[
        list[str] | None, typer.Option(help="Predict this one only; may be given several times.")
    ] = None,
    sizes: Annotated[
        str | None, typer.Option(help="Sizes of the whole buffer, such as 1KiB,64KiB,25MB.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Show the times of all builders.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw it to this file, .svg or .png.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON instead.")] = False,
    out: Annotated[Path | None, typer.Option(help="Store the plan here, for TWEED_PLAN.")] = None,
) -> None:
    """Try every builder on a network in the simulator; show predicted times and picks, and store the plan.

    A group runs it when rank 0 is given it: TWEED_PLAN=plan.json torchrun ...
    """
    from tweed.collective import topology
    from tweed.plan import SIZES, make, picture
    from tweed.plan.candidates import FITTED

    for path in (out, plot):
        if path is not None and not path.parent.is_dir():
            raise UsageError(f"cannot write {path}: there is no folder {path.parent}")
    asked = SIZES if sizes is None else _sizes(sizes)
    try:
        with Console(stderr=True).status("") as status:
            planned = make(topology.read(network), collective or FITTED, asked, tell=status.update)
    except KeyboardInterrupt:
        typer.echo("Stopped.", err=True)
        raise typer.Exit(130) from None
    if plot is not None:
        picture.write(planned, plot)
    if out is not None:
        _write(out, planned.plan.to_json())
    _tell(planned, as_json, everything, out)


def _tell(planned: Planned, as_json: bool, everything: bool, out: Path | None) -> None:
    from tweed.plan import show

    if as_json:
        typer.echo(json.dumps(show.plain(planned), indent=1))
        return
    console = Console()
    show.planned(planned, console, everything=everything)
    if out is not None:
        console.print(f"Stored. A group runs it with TWEED_PLAN={out}", soft_wrap=True, highlight=False)


def _sizes(text: str) -> list[int]:
    return [_size(part.strip()) for part in text.split(",")]


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


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
