"""`tweed launch`: ranks on several hosts, over ssh."""

from __future__ import annotations

import os
import secrets
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from typer.core import TyperCommand

from tweed.errors import UsageError


class Launched(TyperCommand):
    """A command whose words after `--` are another's, options included."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Takes them away before click sees them."""
        at = args.index("--") if "--" in args else len(args)
        ctx.obj = args[at + 1 :]
        return super().parse_args(ctx, args[:at])


def launch(
    ctx: typer.Context,
    hosts: Annotated[
        list[str] | None,
        typer.Argument(help="As ssh knows them; localhost is this one. HOST=ADDRESS: where others reach it."),
    ] = None,
    ranks_per_host: Annotated[int, typer.Option(min=1, help="So many ranks on each host.")] = 1,
    python: Annotated[str, typer.Option(help="The interpreter on all hosts. Default: this one's path.")] = "",
    folder: Annotated[
        str, typer.Option(help="Where ranks work, on all hosts. Default: this folder's path.")
    ] = "",
    ports: Annotated[
        str,
        typer.Option(
            envvar="TWEED_PORTS", help="What ranks listen on; firewalls between hosts must let it through."
        ),
    ] = "29600-29699",
    master_port: Annotated[
        int, typer.Option(min=1, max=65535, help="Of torch's store, on the first host.")
    ] = 29500,
    env: Annotated[list[str] | None, typer.Option(help="NAME=VALUE for all ranks; may be repeated.")] = None,
    ssh: Annotated[str, typer.Option(help="The command that reaches hosts: ssh -p 2222 -i key.")] = "ssh",
    doctor: Annotated[bool, typer.Option(help="Run tweed doctor between the hosts first.")] = True,
) -> None:
    """Start a script on several hosts over ssh: tweed launch HOST1 HOST2 -- script.py ARGUMENTS

    After -- stand a script of Python, or -m and a module, as they are on the hosts. Makes the secret, unless
    TWEED_SECRET or TWEED_SECRET_FILE is set here; compares versions and clocks. Rank 0 is on HOST1. Output
    is marked by rank. If a rank fails, all end, and its exit code is returned. Ctrl-C ends all.
    """
    from tweed.launch.job import Host, Job, passed_on
    from tweed.launch.run import Launch

    job = Job(
        hosts=tuple(map(Host.parse, hosts or [])),
        words=tuple(ctx.obj or []),
        secret=_secret(),
        ranks_per_host=ranks_per_host,
        python=python or sys.executable,
        folder=folder or str(Path.cwd()),
        ports=ports,
        port=master_port,
        environment=passed_on(os.environ, env or []),
    )
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, _end)
    try:
        status = Launch(job, ssh, Shown()).run(visit=doctor)
    except KeyboardInterrupt:
        typer.echo("Stopped; all ranks were ended.", err=True)
        status = 130
    except BrokenPipeError:  # who read the output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 128 + signal.SIGPIPE
    raise typer.Exit(status)


def _end(number: int, _: FrameType | None) -> NoReturn:
    """Leaves by way of what ends the ranks."""
    raise SystemExit(128 + number)


def _secret() -> str:
    if path := os.environ.get("TWEED_SECRET_FILE"):
        try:
            return Path(path).read_text().strip()
        except OSError as error:
            raise UsageError(f"TWEED_SECRET_FILE={path} cannot be read: {error.strerror}") from None
    return os.environ.get("TWEED_SECRET") or secrets.token_hex(32)


class Shown:
    """Shows a job in a terminal."""

    def line(self, rank: int, stream: int, text: str) -> None:
        """As the rank has printed it, after its number."""
        print(f"[{rank}] {text}", file=sys.stdout if stream == 1 else sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """On the error stream, so that the other one is the ranks' alone."""
        typer.echo(f"tweed: {text}", err=True)

    def doctor(self, report: dict[str, Any]) -> bool:
        """Links, and what is worth a warning."""
        from tweed.doctor import Finding, Level, show
        from tweed.doctor.matrix import Matrix

        console = Console(stderr=True)
        if report["matrix"] is not None:
            show.matrix(Matrix.from_plain(report["matrix"]), console)
        found = [Finding.from_plain(one) for one in report["findings"]]
        if bad := [one for one in found if one.level >= Level.WARNING]:
            show.findings(bad, console)
        return all(one.level < Level.ERROR for one in found)
