"""`tweed doctor`: what is wrong with this host or between ranks, and what to type."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from tweed.errors import UsageError
from tweed.files import write_atomic

if TYPE_CHECKING:
    from tweed.doctor.together import Report


def doctor(
    ranks: Annotated[
        int | None, typer.Option(help="Start so many ranks on this machine and measure between them.")
    ] = None,
    network: Annotated[
        str | None, typer.Option(help="Put them into a network: rate=100mbit,loss=0.1%,congestion=bbr.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
    output: Annotated[Path | None, typer.Option(help="Write the JSON to this file too.")] = None,
    wait: Annotated[float, typer.Option(min=1, help="Seconds for ranks of several hosts to meet.")] = 60,
) -> None:
    """Look at this host, and at the links between ranks if there are several; say what to mend and how.

    Under torchrun all its ranks take part: torchrun ... --no-python tweed doctor.
    The exit code is 1 if there are errors.
    """
    from tweed.doctor.together import under_torchrun
    from tweed.train.world import launched_ranks

    if output is not None and not output.parent.is_dir():
        raise UsageError(f"cannot write {output}: there is no folder {output.parent}")
    size = launched_ranks() if _whole() else None
    if size is not None and ranks is not None:
        raise UsageError("torchrun has started the ranks already; omit --ranks and --network")
    if network is not None and ranks is None:
        raise UsageError("--network needs --ranks, such as --ranks 4")
    try:
        report = under_torchrun(wait) if size is not None else _alone(ranks, network)
    except KeyboardInterrupt:
        typer.echo("Stopped.", err=True)
        raise typer.Exit(130) from None
    if report is not None:
        _show(report, as_json, output)


def _whole() -> bool:
    """Whether the environment is fit for a rendezvous. If not, `examine` says why."""
    from tweed.doctor import Level
    from tweed.doctor.checks import environment

    return all(finding.level < Level.ERROR for finding in environment.judge(environment.gather()))


def _alone(ranks: int | None, network: str | None) -> Report:
    from tweed.doctor import examine
    from tweed.doctor.together import Report, on_this_machine
    from tweed.testbed import Network

    if ranks is None:
        return Report(tuple(examine()))
    if ranks < 2:
        raise UsageError(f"nothing can be measured between {ranks} ranks: give --ranks 2 or more")
    return on_this_machine(ranks, None if network is None else Network.parse(network))


def _write(output: Path, text: str) -> None:
    try:
        write_atomic(output, text + "\n")
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}") from None


def _show(report: Report, as_json: bool, output: Path | None) -> None:
    from tweed.doctor import Level, show

    text = json.dumps(report.plain(), indent=1)
    if output is not None:
        _write(output, text)
    if as_json:
        typer.echo(text)
    else:
        console = Console()
        if report.matrix is not None:
            show.matrix(report.matrix, console)
        show.findings(report.findings, console)
    if any(finding.level is Level.ERROR for finding in report.findings):
        raise typer.Exit(1)
