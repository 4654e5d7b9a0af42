"""What one sees while a job runs: one live row per side on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from tweed.train.results import sent
from tweed.train.settings import Settings


class Display(Protocol):
    """Shows figures as they come. A context manager."""

    def show(self, figures: dict[str, Any]) -> None:
        """Shows a line of figures, see `loop.Figures`."""
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return


#: What is shown of a line of figures, in words; nothing where a side does not tell.
COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "loss": lambda row: f"loss {row['loss']:.3f}",
    "accuracy": lambda row: "" if row["accuracy"] is None else f"accuracy {row['accuracy']:.1%}",
    "speed": lambda row: f"{row['samples_per_s']:,.0f} samples/s",
    "traffic": lambda row: f"{sent(row) / 1e6:,.1f} MB/worker",
    "waiting": lambda row: "" if row["waiting_s"] is None else f"waited {row['waiting_s']:.1f} s",
}


class Live:
    """A row per side with a bar and the latest figures; for terminals."""

    def __init__(self, settings: Settings, console: Console) -> None:
        texts = [TextColumn(f"{{task.fields[{name}]}}") for name in COLUMNS]
        title = TextColumn("{task.description}", style="bold")
        self._progress = Progress(title, BarColumn(12), MofNCompleteColumn(), *texts, console=console)
        empty: dict[str, Any] = dict.fromkeys(COLUMNS, "")
        self._rows = {
            label: self._progress.add_task(title, total=settings.steps, **empty)
            for label, title in settings.sides.items()
        }

    def show(self, figures: dict[str, Any]) -> None:
        """An accuracy stays until the next one."""
        words = {name: say(figures) for name, say in COLUMNS.items()}
        lines: dict[str, Any] = {name: text for name, text in words.items() if text}
        self._progress.update(self._rows[figures["side"]], completed=figures["step"], **lines)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


class Plain(Display):
    """A line per evaluation; for files and pipes."""

    def __init__(self, settings: Settings, console: Console) -> None:
        self._settings, self._console = settings, console

    def show(self, figures: dict[str, Any]) -> None:
        if figures["accuracy"] is None:
            return
        words = [say(figures) for say in COLUMNS.values()]
        title = self._settings.sides[figures["side"]]
        line = f"{title}: step {figures['step']}/{self._settings.steps}, {', '.join(filter(None, words))}"
        self._console.print(line, soft_wrap=True, highlight=False)


class Silent(Display):
    """Shows nothing; for workers other than rank 0."""


def display(settings: Settings, console: Console) -> Display:
    """The display that fits `console`."""
    return (Live if console.is_terminal else Plain)(settings, console)
