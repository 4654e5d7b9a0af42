"""Gradients of shards that several workers hold: the cadence `ByShards`, over a server.

    worker, each step                               server
    head: a message, of step and place    ->
    the message                           ->        until what came decodes; what is of an older step is
    (the next shard)                                received, and thrown away
                                          <-   head: the step is over, and the next one's code
                                          <-   the mean over shards
    head: heard, and how long it took     ->

server, worker      what they decide, pure
choice              which code is next, by measured times; pure
heads               what single messages begin with
gradients           the `GradientReducer`; `live_server` and `live_worker`: its two sides
"""

from __future__ import annotations

from tweed.exchange.by_shards.server import Broken, Contribution, Heard, ShardServer, Tally, Update
from tweed.exchange.by_shards.worker import Outgoing, ShardWorker

__all__ = ["Broken", "Contribution", "Heard", "Outgoing", "ShardServer", "ShardWorker", "Tally", "Update"]
