"""What decides, without links, clocks or torch: `live` and `simulate` walk it.

hub                 what follows of each message; `events`: all that it is given; `chosen`: by a strategy
tasks               who gets one; `turns`: whose transfer is next
members, member     all of them with their leases, and what is known of each; `actions`: what is to be done
grants              who may send, and which way
commits             what is counted for the next update; `updates`: what the optimizer steps by
gathering           the hub's side of aggregators; `planning`: who sends via whom; `rates`: what was measured
worker              a member's side: one task at a time, sent again when a link breaks
aggregator          a member that adds up what others send; `lengths`: whether a sum can be one
holder              a member that hands the newest model to others
"""
