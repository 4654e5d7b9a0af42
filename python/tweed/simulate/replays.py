"""`replay`: a recorded live run through the executor again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tweed import _core
from tweed.errors import DataError


@dataclass(frozen=True)
class Replay:
    """What was replayed without a difference.

    `schedule` and `rank` say what was run and by whom; `entries` counts the events and actions compared.
    """

    schedule: _core.Schedule
    rank: int
    entries: int


def replay(path: str | Path) -> Replay:
    """Feeds the events of a recorded run to a fresh executor and compares what it does, action by action.

    Args:
      path: a trace that the engine has recorded of one rank's run of one operation.

    Returns:
      What was replayed.

    Raises:
      DataError: the file is missing, is no trace, or is damaged; names the line.
      TweedError: the executor did something else than what was recorded; names the entry.

    Cost: that of the run, without the bytes: about a million entries per second.
    """
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the trace {path} cannot be read: {error}") from error
    schedule, rank, entries = _core.replay(text)
    return Replay(schedule, rank, entries)
