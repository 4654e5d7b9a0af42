"""Several ranks on one machine: started from a warm fork server, watched, killed on request."""

from __future__ import annotations

from tweed.testbed.ranks import Ended, Event, Failed, RankFailed, Ranks, Said, run_ranks, say
from tweed.testbed.server import preload

__all__ = ["Ended", "Event", "Failed", "RankFailed", "Ranks", "Said", "preload", "run_ranks", "say"]
