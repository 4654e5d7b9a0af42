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

    aggregator, a member          hub
                                  <-   Gather(group, tasks)    members get Grant(number, via), send to it
    Sum(group, tasks, value)      ->                       counted, each as if it had come by itself
                                  <-   Void(group)         or not at all: they send again, to the hub

wire        what crosses a link
machine     what decides: hub, worker, and a member that adds up
links       what is needed of links, calls, and the links of a group
replica     a second hub, which takes over
keyed       links of members that come and go
aggregator  a member that works for others, live
live        hub and worker as exchanges

Each imports of those above it.
"""

from __future__ import annotations

from tweed.exchange.hub.machine.actions import Step
from tweed.exchange.hub.machine.hub import Hub
from tweed.exchange.hub.machine.worker import Worker
from tweed.exchange.hub.wire.messages import Grant, Leave, Offer, Outcome, Payload, Ready, Task

__all__ = ["Grant", "Hub", "Leave", "Offer", "Outcome", "Payload", "Ready", "Step", "Task", "Worker"]
