"""Which schedule for which size on this network: every builder tried in the simulator, the quickest picked.

    network = topology.read("network.json")
    planned = tweed.collective.planning.make(network)
    planned.plan                          # a `collective.Plan`: `Options(plan=...)` and `TWEED_PLAN` take it
    planned.tables["all_reduce"].times    # what each builder is predicted to take, by size

The live counterpart is `tweed plan network.json --out plan.json`.
"""

from __future__ import annotations

from tweed.collective.planning.candidates import Candidate, candidates
from tweed.collective.planning.making import SIZES, Planned, make
from tweed.collective.planning.predict import USUAL, Host, predicted
from tweed.collective.planning.table import Table, Time, Verdict

__all__ = [
    "SIZES",
    "USUAL",
    "Candidate",
    "Host",
    "Planned",
    "Table",
    "Time",
    "Verdict",
    "candidates",
    "make",
    "predicted",
]
