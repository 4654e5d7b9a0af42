"""The two sides of a hub as exchanges, over whatever links there are.

hub                 the hub's; `parameters`: its model; `trusted`: what it finds out by samples that it trusts
worker              a worker's
group_links         the links of both where they are ranks of one group
contribution, tally what became of contributions, and what is counted of members
event_log           a file of all that a hub's machine is given; `replaying`: the same again
"""
