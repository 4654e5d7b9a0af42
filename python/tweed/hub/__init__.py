"""A hub that workers reach when they like: pure machines, what is live around them, and the two runs.

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
links       what is needed of links, and those of a group
standby     a second hub, which takes over
keyed       links of members that come and go
aggregator  a member that works for others, live
live        hub and worker as exchanges

Each imports of those above it. Beside them, of a hub that is a process of its own: `run`, which `serve`
makes; `process`, what is trained there; `replay`, the run again, from its log. Sockets and handshakes are in
`tweed.links` and in `crates/net/src/hub`.
"""
