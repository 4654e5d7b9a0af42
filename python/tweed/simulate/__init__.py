"""Collectives on a virtual network: the executor that runs live, under a virtual clock.

    schedule = tweed.collective.build("all_reduce", "ring", 64)
    links = tweed.collective.Topology.complete(64, bandwidth=125_000_000, latency_s=50e-6)
    tweed.simulate.run(schedule, 100_000_000, links).seconds
    tweed.simulate.run(schedule, 100_000_000, links, deaths={3: 0.5}).lost     # who raised PeerLost, and when
    tweed.simulate.replay("trace.txt")            # does a recorded live run replay, action by action?
    slow = tweed.simulate.stragglers(64, share=0.1, factor=3, seed=1)             # for `run(..., slow=slow)`

A training step over simulated exchanges: `workload`, with `models` as data. Training without a network:
`tweed.simulate.workers` runs a strategy's stages for N models of one process;
`tweed.simulate.recorded` makes a workload from a model's own backward pass.

Nothing sleeps, and the same arguments give the same run.
"""

from __future__ import annotations

from tweed.collective.runs import Conditions, Crossing, Lost, Result, run
from tweed.simulate.replays import Replay, replay
from tweed.simulate.stragglers import stragglers

__all__ = ["Conditions", "Crossing", "Lost", "Replay", "Result", "replay", "run", "stragglers"]
