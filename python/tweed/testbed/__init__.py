"""Several ranks on one machine, each in a network of its own if asked to; watched, killed on request.

link, way   what one link does, and one direction of it, as values
network     what a network is like, as a value; `text` reads and writes it, `words` says it to people
profiles    networks with names
star        the commands that build it, as values; `rules` those that lose packets
namespaces  holds namespaces and runs commands in them
emulator    the process that delays packets
counters    what links have counted
check       whether that fits what was to be sent
bed         a network that stands
server      the fork server that ranks come from
ranks       the launcher's side of ranks, `inside` their own
"""

from __future__ import annotations

from tweed.testbed.bed import Bed, Host, opened
from tweed.testbed.check import findings
from tweed.testbed.counters import Counters
from tweed.testbed.inside import sent_bytes
from tweed.testbed.link import Link
from tweed.testbed.network import Network
from tweed.testbed.ranks import Ended, Event, Failed, RankFailed, Ranks, Said, run_ranks, say
from tweed.testbed.server import preload

__all__ = [
    "Bed",
    "Counters",
    "Ended",
    "Event",
    "Failed",
    "Host",
    "Link",
    "Network",
    "RankFailed",
    "Ranks",
    "Said",
    "findings",
    "opened",
    "preload",
    "run_ranks",
    "say",
    "sent_bytes",
]
