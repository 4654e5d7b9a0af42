"""A bar on the terminal for a map of tasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tweed.workloads.tasks import mapping


@contextmanager
def progress_bar(title: str = "tasks", console: Console | None = None) -> Iterator[mapping.Progress]:
    """Gives what `map_tasks` takes as `progress`, and shows a bar while the block lasts.

    Args:
      title: in front of the bar.
      console: where it is shown; None: on the standard error stream. Where that is no terminal, nothing is.

    Example:
      >>> with progress_bar("squares") as progress:
      ...     progress(1, 2)
    """
    console = console or Console(stderr=True)
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        row = bar.add_task(title, total=None)
        yield lambda counted, total: bar.update(row, completed=counted, total=total)
