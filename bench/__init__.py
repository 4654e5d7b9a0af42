"""Measurements of tweed beside its peers: `python -m bench`. What and how: docs/benchmarks.md.

run         makes rows of what ranks measured by `tweed.experiments.benchmark`, where contenders take turns
mpi         ranks that OpenMPI starts
parts       the list of what can be measured: collectives, networks (with iperf), training, footprint, memory,
            schedules, simulator
machine     the machine it ran on
table       rows to Markdown: goals, compared, limits, linked, tabled; of cases, with figures by units
"""

from __future__ import annotations
