"""What crosses a hub's links, and in which form. Nothing here decides.

messages    all that is said after the `links.hello`; `head`: as numbers; `framing`: with what comes behind
bodies      what comes behind heads about aggregators; `control`: between hub, standby and members
form        how contributions and models cross, and what they stand for
"""
