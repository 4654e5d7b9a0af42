"""Measurements of tweed beside its peers: `python -m bench`. What and how: docs/benchmarks.md.

run         makes rows of what ranks measured by `systems.harness.benchmark`, where contenders take turns
mpi         ranks that OpenMPI starts
parts       the list of what can be measured: collectives, networks (with iperf), training, footprint, memory,
            schedules
machine     the machine it ran on
table       rows to Markdown: goals, compared, memory, linked, tabled, pictures
            (of cases; values by units)
"""

from __future__ import annotations
