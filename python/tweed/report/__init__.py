"""Reports of runs and of experiments, and the notes that experiments' reports are made of.

page    a run's report: one HTML file with plots, that needs nothing else to be looked at
study   an experiment's report, as a value
notes   what an experiment measured, a line each, in a folder

Nothing is imported here: ranks that keep notes need no matplotlib.
"""

from __future__ import annotations
