"""What decides, without links, clocks or torch: `live` and `simulate` walk it.

hub                 what follows of each message; `events`: all that it is given; `build`: by a strategy
tasks               who gets one; `schedule`: whose transfer is next
members, member     all of them with their leases, and what is known of each; `actions`: what is to be done
grants              who may send, and which way
update_batch        what is counted for the next update; `updates`: what the optimizer steps by
open_groups         the hub's side of aggregators; `grouping`: who sends via whom;
                    `rates`: as measured
worker              a member's side: one task at a time, sent again when a link breaks
aggregator          a member that adds up what others send; `norms`: whether a sum can be one
model_source        a member that hands the newest model to others
"""

from __future__ import annotations

from tweed.hub.machine.actions import Step
from tweed.hub.machine.hub import Hub
from tweed.hub.machine.worker import Worker
from tweed.hub.wire.messages import Grant, Leave, Offer, Outcome, Payload, Ready, Task

__all__ = ["Grant", "Hub", "Leave", "Offer", "Outcome", "Payload", "Ready", "Step", "Task", "Worker"]
