"""The notes of an experiment, in a folder that can be gone on with; and questions to their lines."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

#: A line of notes: what was measured, and the values. Plain values.
Line = Mapping[str, Any]


class Notes:
    """What an experiment measured, in a folder, a JSON object per line, as it comes.

    Args:
      folder: is there; what its notes have already is not measured again.
      log: called with a line for people, now and then.
    """

    def __init__(self, folder: Path, log: Callable[[str], None] = lambda text: None) -> None:
        self.folder = folder
        self.log = log
        self._path = folder / "figures.jsonl"
        # A last line without an end was being written when the process ended.
        lines = self._path.read_text().split("\n")[:-1] if self._path.exists() else []
        self.lines: list[Line] = [json.loads(line) for line in lines]

    def add(self, line: Line) -> None:
        """Keeps a line in the file and in `lines`."""
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        self.lines.append(line)

    def has(self, **facts: object) -> bool:
        """Whether there is a line with these facts."""
        return find(self.lines, **facts) is not None


def find(lines: Iterable[Line], **facts: object) -> Line | None:
    """The first line with these facts."""
    return next((line for line in lines if all(line.get(key) == value for key, value in facts.items())), None)


def where(lines: Iterable[Line], **facts: object) -> list[Line]:
    """All lines with these facts."""
    return [line for line in lines if all(line.get(key) == value for key, value in facts.items())]


def values(lines: Iterable[Line], key: str) -> list[Any]:
    """The different values that lines have under a key, in the order in which they come."""
    return list(dict.fromkeys(line[key] for line in lines))


def mean(lines: Sequence[Line], key: str) -> float | None:
    """The mean of what lines have under a key; None if there are no lines."""
    return statistics.fmean(line[key] for line in lines) if lines else None


def mean_curve(lines: Sequence[Line], key: str) -> list[float]:
    """The mean, point by point, of curves under a key, as far as all of them reach."""
    return [statistics.fmean(points) for points in zip(*(line[key] for line in lines), strict=False)]


def differences(
    mine: Iterable[Line],
    theirs: Iterable[Line],
    value: Callable[[Line], float] = lambda line: line["accuracy"],
) -> list[float]:
    """The points by which mine are above theirs of the same seed; seeds that only one has do not count."""
    base = {line["seed"]: value(line) for line in theirs}
    return [100 * (value(line) - base[line["seed"]]) for line in mine if line["seed"] in base]
