"""What a check says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """How bad it is. An ERROR keeps training from working, a WARNING may; a NOTE is worth knowing."""

    OK, NOTE, WARNING, ERROR = range(4)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found.

    Attributes:
      what: what is so, in words.
      fix: what to do about it, with the command to type; empty where nothing is to be done.
      subject: the check that found it; `examine` fills it in.
      host: where; filled in when several hosts are looked at.

    Example:
      >>> Finding(Level.NOTE, "few files may be open", "ulimit -n 65536").plain()["level"]
      'note'
    """

    level: Level
    what: str
    fix: str = ""
    subject: str = ""
    host: str = ""

    def plain(self) -> dict[str, str]:
        """The finding as JSON has it."""
        return {
            "level": self.level.name.lower(),
            "subject": self.subject,
            "host": self.host,
            "what": self.what,
            "fix": self.fix,
        }

    @classmethod
    def from_plain(cls, value: dict[str, str]) -> Finding:
        """The inverse of `plain`."""
        level = Level[value["level"].upper()]
        return cls(level, value["what"], value["fix"], value["subject"], value["host"])


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Sorted by level; within a level the order stays."""
    return sorted(findings, key=lambda finding: -finding.level)
