"""A hub that workers reach when they like: pure machines, which `server` and `simulate` walk.

    worker                             hub
    Ready(last)                   ->                       a worker that has come asks for a task
                                  <-   Task(number, version)
    (computes on that version)
    Offer(number, bytes, ...)     ->                       what it has is described, and does not move yet
                                  <-   Grant(number)       or an Outcome: dropped, and the next task
    Payload(number, value)        ->
                                  <-   Outcome(number)     counted
                                  <-   Task(number + 1, version)
    Leave                         ->                       its task goes to another

messages            what crosses a link
hub                 tasks and leases, who may send, what is committed
worker              a member's side: one task at a time, sent again when a link breaks
"""

from __future__ import annotations

from tweed.exchange.hub.hub import Hub, Step
from tweed.exchange.hub.messages import Grant, Leave, Offer, Outcome, Payload, Ready, Task
from tweed.exchange.hub.worker import Worker

__all__ = ["Grant", "Hub", "Leave", "Offer", "Outcome", "Payload", "Ready", "Step", "Task", "Worker"]
