"""`tweed reproduce`: a published system's experiment, measured here."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

RUNS = Path("runs")
#: The form of the notes; a run with notes of another form is not gone on with.
NOTES = 2


def reproduce(
    name: Annotated[str, typer.Argument(help="A system, such as ltp.")],
    quick: Annotated[bool, typer.Option("--quick", help="A look of a minute; not for figures.")] = False,
    run: Annotated[str | None, typer.Option(help="Name of the run; its folder is runs/NAME.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run called --run.")] = False,
    page: Annotated[
        Path | None, typer.Option(help="A Markdown page whose marked part gets the figures, too.")
    ] = None,
) -> None:
    """Measure a published system beside its peers; write figures and a report to runs/NAME."""
    from tweed.files import write_atomic
    from tweed.report import study
    from tweed.report.notes import Notes
    from tweed.systems import system
    from tweed.systems.harness.learning_rates import require_settled

    found = system(name)
    settings = {"system": name, "quick": quick, "notes": NOTES}
    folder = _folder(run or f"reproduce-{name}", resume, settings)
    typer.echo(f"{found.title}. {found.paper}. Folder: {folder}")
    notes = Notes(folder, typer.echo)
    found.experiment(notes, quick)
    path = folder / "report.html"
    report = found.study(notes.lines)
    write_atomic(path, study.page(report, json.loads((folder / "run.json").read_text())))
    if page is not None:
        require_settled(notes.lines)
        study.put_in(page, report)
    typer.echo(f"Report: {path}")


def _folder(name: str, resume: bool, settings: dict[str, object]) -> Path:
    from tweed.errors import UsageError
    from tweed.files import write_atomic
    from tweed.train.folder import machine

    folder = RUNS / name
    facts = folder / "run.json"
    if resume:
        if not facts.exists() or json.loads(facts.read_text())["settings"] != settings:
            raise UsageError(f"there is no run of {settings} in {folder} to go on with")
        return folder
    if facts.exists():
        raise UsageError(f"{folder} is there already: --resume goes on with it, another --run starts anew")
    folder.mkdir(parents=True, exist_ok=True)
    settled = machine() | {"settings": settings, "command": shlex.join(["tweed", *sys.argv[1:]])}
    write_atomic(facts, json.dumps(settled, indent=2))
    return folder
