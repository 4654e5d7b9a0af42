"""Several ranks on one machine, each in a network of its own if asked to; watched, killed on request.

link              what one link does, and one direction of it, as values
network           what a network is like, as a value; `text` reads and writes it
star_network      the commands that build it, as values; `topology_network` those of any topology
shaping           how links get their rates and losses
namespaces        holds namespaces and runs commands in them
emulator          the process that delays packets
counters          what links have counted, and whether that fits what was to be sent
host_network      where ranks live in any live network
live_network      the networks that stand
ranks             the launcher's side of ranks, `rank_process` their own; they come from `tweed.forkserver`
rendezvous        how ranks get into a process group
speeds            computing that is slept, as long as it would take elsewhere
restarts          a rank that is killed and comes back
faults            what befalls members, and when, as a value; `fault_injector` does it to processes
ray_cluster       a Ray cluster with a node per rank
"""

from __future__ import annotations

from tweed.forkserver.server import preload
from tweed.testbed.counters import Counters, findings
from tweed.testbed.host_network import Host, HostNetwork
from tweed.testbed.link import Link
from tweed.testbed.live_network import LiveNetwork, LiveTopologyNetwork, linked, opened
from tweed.testbed.network import Network
from tweed.testbed.rank_process import sent_bytes
from tweed.testbed.ranks import Ended, Event, Failed, RankFailed, Ranks, Said, run_ranks, say
from tweed.testbed.speeds import Speed

__all__ = [
    "Counters",
    "Ended",
    "Event",
    "Failed",
    "Host",
    "HostNetwork",
    "Link",
    "LiveNetwork",
    "LiveTopologyNetwork",
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
