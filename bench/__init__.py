"""Measurements of tweed beside its peers: `python -m bench`. What and how: docs/benchmarks.md.

race        inside a rank: contenders take turns at the same work
run         outside: makes rows of what ranks measured
mpi         ranks that OpenMPI starts
parts       the list of what can be measured: collectives, networks (with iperf), training, footprint, memory,
            schedules, simulator
machine     the machine it ran on
table       rows to Markdown: goals, compared, limits, linked, tabled; of cases, with figures by units
"""

from __future__ import annotations
