"""`tweed doctor`: looks at a host and at the links between ranks, and says what to mend and how.

finding     what a check says
checks/     one file per check: `gather` looks at the host, `judge` is pure
table       the checks by name, and `examine`, which runs them
estimate    figures from round trips; pure
probe       one pair of ranks exchanges messages over the engine
matrix      what was measured between ranks, as a value and as JSON
verdict     findings from it; pure
together    several ranks: reports exchanged, pairs measured one after the other
show        findings and figures for people, and as JSON
"""

from __future__ import annotations

from tweed.doctor.finding import Finding, Level
from tweed.doctor.table import CHECKS, Check, examine

__all__ = ["CHECKS", "Check", "Finding", "Level", "examine"]
