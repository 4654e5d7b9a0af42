"""Several ranks on one machine, each in a network of its own if asked to; watched, killed on request.

link        what one link does, and one direction of it, as values
network     what a network is like, as a value; `text` reads and writes it
profiles    networks with names
star        the commands that build it, as values; `wires` those for the links of any topology
shaping     how links get their rates and losses
namespaces  holds namespaces and runs commands in them
emulator    the process that delays packets
counters    what links have counted, and whether that fits what was to be sent
ground      where ranks live in any of them
bed         the networks that stand
ranks       the launcher's side of ranks, `inside` their own; they come from `tweed.forkserver`
meetings    how ranks get into a process group
speeds      computing that is slept, as long as it would take elsewhere
lives       a rank that is killed and comes back
faults      what befalls members, and when, as a value; `struck` does it to processes
raylets     a Ray cluster with a node per rank
"""

from __future__ import annotations

from tweed.forkserver.server import preload
from tweed.testbed.bed import Bed, LinkedBed, linked, opened
from tweed.testbed.counters import Counters, findings
from tweed.testbed.ground import Ground, Host
from tweed.testbed.inside import sent_bytes
from tweed.testbed.link import Link
from tweed.testbed.network import Network
from tweed.testbed.ranks import Ended, Event, Failed, RankFailed, Ranks, Said, run_ranks, say
from tweed.testbed.speeds import Speed

__all__ = [
    "Bed",
    "Counters",
    "Ended",
    "Event",
    "Failed",
    "Ground",
    "Host",
    "Link",
    "LinkedBed",
    "Network",
    "RankFailed",
    "Ranks",
    "Said",
    "Speed",
    "findings",
    "linked",
    "opened",
    "preload",
    "run_ranks",
    "say",
    "sent_bytes",
]
