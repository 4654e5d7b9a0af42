"""What crosses a hub's links, and in which form. Nothing here decides.

address     where a hub is and who it is, and what a process shows to be let in
greetings   what is said first over a link
messages    all that is said then; `head`: as numbers; `framing`: with what comes behind
bodies      what comes behind heads about aggregators; `control`: between hub, standby and members
form        how contributions and models cross, and what they stand for
"""
