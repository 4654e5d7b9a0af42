"""Measurements of tweed beside Gloo: `python -m bench`. See docs/benchmarks.md for what is measured and how.

race        inside a rank: contenders take turns at the same work
run         outside: starts ranks, makes rows of what they measured
parts       the list of what can be measured: collectives, training, memory, schedules, simulator
machine     the machine it ran on
table       rows to Markdown: compared, limits; of cases, with figures by units
"""

from __future__ import annotations
