"""What a system is, and the notes of its experiment: a folder that can be gone on with."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tweed.report.study import Study

#: A line of notes: what was measured, and the figures. Plain values.
Line = Mapping[str, Any]


class Notes:
    """Figures of an experiment in a folder, a JSON object per line, as they come.

    Args:
      folder: is there; figures that it has already are not measured again.
      tell: called with a line for people, now and then.
    """

    def __init__(self, folder: Path, tell: Callable[[str], None] = lambda text: None) -> None:
        self.folder = folder
        self.tell = tell
        self._path = folder / "figures.jsonl"
        lines = self._path.read_text().split("\n")[:-1] if self._path.exists() else []
        self.lines: list[Line] = [json.loads(line) for line in lines]

    def add(self, line: Line) -> None:
        """Keeps a line."""
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        self.lines.append(line)

    def has(self, **facts: object) -> bool:
        """Whether there is a line with these facts."""
        return any(all(line.get(key) == value for key, value in facts.items()) for line in self.lines)


@dataclass(frozen=True, slots=True)
class System:
    """A published system.

    Attributes:
      title: what it is called, and what it is.
      paper: where it is described.
      parts: the strategy that it is here, as an expression.
      experiment: measures all that is not yet in the notes; the flag asks for a quick look only.
      study: the report of such notes.
    """

    title: str
    paper: str
    parts: str
    experiment: Callable[[Notes, bool], None]
    study: Callable[[Sequence[Line]], Study]
