"""Measurements of tweed beside Gloo: `python -m bench`. See docs/benchmarks.md for what is measured and how.

race        inside a rank: contenders take turns at the same work
run         outside: starts ranks, makes rows of what they measured
collectives, training, memory, schedules     what is measured; `parts` lists it
machine     the machine it ran on
table       rows to Markdown, `units` the figures in it
"""

from __future__ import annotations
