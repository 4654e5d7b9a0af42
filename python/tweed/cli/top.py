"""`tweed top`: looks at a run of this user on this host while it goes on."""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tweed.metrics.live import Watcher
    from tweed.metrics.snapshot import Matrix
    from tweed.metrics.view import View

_PATIENCE_S = 3.0  # a run that tells nothing for so long is not waited for
_WINDOW = 5  # rates are those between the first and the last of so many matrices


def top(
    process: Annotated[int | None, typer.Argument(help="Which run: the process of its rank 0.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Print it once and leave.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the counters as lines of JSON.")] = False,
) -> None:
    """Show a run's links, who arrives last, bytes and retransmissions, live; of a hub its members, and what
    becomes of their contributions.

    It runs on the host of rank 0, or of the hub, as the same user. Where several runs go on, it lists them.
    Ctrl-C leaves.
    """
    runs = [run for run in _runs() if process in (None, run[1].pid)]
    if not runs:
        raise _nothing(process)
    if len(runs) > 1:
        return _list([matrix for _, matrix in runs])
    watcher, matrix = runs[0]
    with watcher:
        try:
            if json:
                _lines(watcher, matrix, once)
            elif once or not sys.stdout.isatty():
                _print(_view_of_two(watcher, matrix))
            else:
                _live(watcher, matrix)
        except KeyboardInterrupt:
            pass  # that is how one leaves


def _runs() -> list[tuple[Watcher, Matrix]]:
    """Every run that answers, and the first that it tells. Others are named on the error stream.

    Raises: DeadlineExceeded if there are only others.
    """
    from tweed.errors import DeadlineExceeded
    from tweed.metrics.live import watchers

    found, silent = [], []
    for watcher in watchers():
        try:
            matrix = watcher.next(_PATIENCE_S)
        except EOFError:
            continue
        if matrix is None:
            silent.append(watcher.path.stem)
        else:
            found.append((watcher, matrix))
    words = f"rank 0 in process {', '.join(silent)} tells nothing: it is stopped, or too busy"
    if silent and not found:
        raise DeadlineExceeded(words)
    if silent:
        typer.echo(f"tweed: {words}", err=True)
    return found


def _nothing(process: int | None) -> Exception:
    from tweed.errors import UsageError

    what = "run" if process is None else f"run with rank 0 in process {process}"
    return UsageError(
        f"there is no {what} of this user on this host; look on the host of rank 0. Only hubs, and groups "
        "of two or more ranks on the backend 'tweed', can be seen, and not with TWEED_METRICS=0"
    )


def _list(matrices: list[Matrix]) -> None:
    from tweed.metrics.view import title

    for matrix in matrices:
        typer.echo(f"tweed top {matrix.pid:<10} {title(matrix)}")


def _lines(watcher: Watcher, matrix: Matrix, once: bool) -> None:
    typer.echo(matrix.to_json())
    while not once:
        try:
            later = watcher.next(_PATIENCE_S)
        except EOFError:
            return
        if later is not None:
            typer.echo(later.to_json())


def _view_of_two(watcher: Watcher, first: Matrix) -> View:
    """What happened up to the next matrix; if none comes, since the run began."""
    from tweed.metrics.view import View

    try:
        second = watcher.next(_PATIENCE_S)
    except EOFError:
        second = None
    return View(first, first) if second is None else View(second, second.since(first))


def _print(view: View) -> None:
    from rich.console import Console

    Console(highlight=False).print(view)


def _live(watcher: Watcher, first: Matrix) -> None:
    from rich.console import Console
    from rich.live import Live

    from tweed.metrics.view import View
    from tweed.metrics.words import duration

    recent, silent_s = deque([first], maxlen=_WINDOW), 0.0
    with Live(View(first, first), console=Console(highlight=False), screen=True, auto_refresh=False) as live:
        while True:
            try:
                matrix = watcher.next(1.0)
            except EOFError:
                break
            silent_s = 0.0 if matrix else silent_s + 1.0
            if matrix:
                recent.append(matrix)
            note = f"rank 0 tells nothing, for {duration(silent_s)} now" if silent_s > _PATIENCE_S else ""
            live.update(View(recent[-1], _window(recent), note), refresh=True)
    _print(View(recent[-1], _window(recent), "The run has ended; these are its last metrics."))


def _window(recent: deque[Matrix]) -> Matrix:
    return recent[-1].since(recent[0]) if len(recent) > 1 else recent[0]
