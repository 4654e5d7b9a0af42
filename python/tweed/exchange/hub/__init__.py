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

messages            what crosses a link; `head`: as numbers
hub                 tasks, and what follows of each message
members, member     all of them with their leases, and what is known of each; `actions`: what is to be done
grants              who may send, and which way; `commits`: what is counted for the next update
worker              a member's side: one task at a time, sent again when a link breaks
aggregator          a member that adds up what others send
gathering           the hub's side of that; `planning`: who sends via whom; `rates`: what was measured
holder              a member that hands the newest model to others
replica             applies the same commits as the hub, and takes over when it is gone

live_hub            the hub's exchange, over whatever `links` there are; `live_worker`: a worker's
rank_links          links of a process group; `sealed_ranks`: those of one whose ranks are aggregators
member_link         that of a member; `calling` a hub, its `address`, and `greetings`: what is said first
keyed_links         the hub's to members; `allowances`: what each may send; `silence`: who does not
live_aggregator     that of a member that works for others; `service`: what it lets them; `ways`: their side
framing, bodies     what crosses such links; `control`: between hub, replica and members
replication         a hub's side of its replica; `replica_link`: a member's; `succession`: who takes over
events, event_log   all that a hub is given, and a file of that; `replaying`: the same again
form, trusted       how contributions cross, and what the hub finds out by samples that it trusts
"""

from __future__ import annotations

from tweed.exchange.hub.actions import Step
from tweed.exchange.hub.hub import Hub
from tweed.exchange.hub.messages import Grant, Leave, Offer, Outcome, Payload, Ready, Task
from tweed.exchange.hub.worker import Worker

__all__ = ["Grant", "Hub", "Leave", "Offer", "Outcome", "Payload", "Ready", "Step", "Task", "Worker"]
