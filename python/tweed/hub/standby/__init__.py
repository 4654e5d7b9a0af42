"""A second hub, which applies the same commits and takes over when the first is gone.

standby             the machine; `succession`: who takes over, the machines of all three sides
replication         the hub's side of its standby
link                a member's
"""
