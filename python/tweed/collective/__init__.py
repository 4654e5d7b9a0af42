"""Who sends which chunk to whom: schedules, their builders, and the choice between them.

    plan = tweed.collective.plan(ranks=4, links=tweed.collective.ONE_HOST)
    plan.rows()                                           # what the engine runs
    tweed.collective.build("all_reduce", "ring", 4)       # one schedule, checked; or (..., topology)

A schedule of your own is a generator of `Send`s:

    def line(ranks):
        for rank in range(ranks - 1):
            yield Send(step=rank, src=rank, dst=rank + 1, chunk=0, reduce=False)

    tweed.collective.schedule("line", "broadcast", ranks=4, chunks=1, sends=line(4))

To have it chosen, give it a name and a cost with `@pattern(...)`, and `register` it on every rank. To add
a builder to tweed, add a file to this folder, or to `topology_aware` if it looks at links, and its name to
`table.py`. A schedule fixes the order in which floating-point sums are taken: by step, then by rank.
"""

from __future__ import annotations

from tweed._core import Cost, Schedule, Send, Topology
from tweed.collective.builder import Builder
from tweed.collective.chooser import NETWORK, ONE_HOST, Choice, Links, Reason, choose
from tweed.collective.hub import Hub
from tweed.collective.pattern import Pattern, Shape, pattern, schedule
from tweed.collective.planning.plans import Pick, Plan, plan
from tweed.collective.server import Server
from tweed.collective.table import COLLECTIVES, build, builders, find, register

__all__ = [
    "COLLECTIVES",
    "NETWORK",
    "ONE_HOST",
    "Builder",
    "Choice",
    "Cost",
    "Hub",
    "Links",
    "Pattern",
    "Pick",
    "Plan",
    "Reason",
    "Schedule",
    "Send",
    "Server",
    "Shape",
    "Topology",
    "build",
    "builders",
    "choose",
    "find",
    "pattern",
    "plan",
    "register",
    "schedule",
]
