"""Gradients of blocks of samples that several workers hold: the cadence `ByShards`, over a server.

    worker, each step                               server
    header: a message, of step and place  ->
    the message                           ->        until what came decodes; what is of an older step is
    (the next block)                                received, and thrown away
                                          <-   header: the step is over, and the next one's code
                                          <-   the mean over blocks
    header: heard, and how long it took   ->

server, worker      what they decide, pure
choice              which code is next, by measured times; pure
header              what single messages begin with
gradients           the `GradientReducer`; `live_server` and `live_worker`: its two sides
"""

from __future__ import annotations

from tweed.exchange.coded_steps.server import Broken, CodedStepServer, Contribution, Heard, Tally, Update
from tweed.exchange.coded_steps.worker import CodedStepWorker, Outgoing

__all__ = [
    "Broken",
    "CodedStepServer",
    "CodedStepWorker",
    "Contribution",
    "Heard",
    "Outgoing",
    "Tally",
    "Update",
]
