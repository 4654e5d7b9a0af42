"""Builders that look at a network's links, grids, switches or places, and send over them alone.

    torus = topology.torus(8, 8)
    collective.build("all_reduce", "multitree", torus)     # a Schedule, checked against the links

They are rows of the one table of builders, `collective/table.py`. To add one, add a file
here and its name there.
"""
