"""Efficient parallel split learning over resource-constrained wireless edge networks (Lin, Zhu, Deng, Chen,
Gao, Huang, Fang, IEEE TMC 2024, arXiv 2303.15991).

Parts: a server and clients in `workloads.split`, latency in `workloads.split.latency`, subchannels and powers
in `exchange.allocation`.

The paper's claim: gradients of a share of the rows are aggregated over clients, so that the server computes
and sends less; rounds are shorter than those of parallel, federated and sequential split learning, at nearly
the same accuracy. (Its percentages are not known here.)

measured        what is learned, and rounds by the latency model
measured_live   rounds on ranks behind short links
report          goals and tables
"""

from __future__ import annotations

from tweed.experiments.learning_rates import Grid
from tweed.experiments.notes import Notes
from tweed.experiments.tuning import tuned
from tweed.systems import Headline, System
from tweed.systems.epsl.measured import WAYS, Config, allocations, rounds, small_cases
from tweed.systems.epsl.measured_live import live
from tweed.systems.epsl.report import CLIENTS, study

SEEDS = range(5)
FULL = tuple(Config(data, kind) for data in ("mnist", "fashion-mnist") for kind in ("iid", "by_label"))
QUICK = (Config("digits", "iid", 16.0, 3, 16, 40, 32),)


def experiment(notes: Notes, quick: bool) -> None:
    """Cost: half an hour of two cores; quick: fifteen seconds."""
    configs, seeds, grid = (QUICK, SEEDS[:1], Grid(0.03, tries=1)) if quick else (FULL, SEEDS, Grid(0.03))
    sides = [config.side(way, grid, seeds) for config in configs for way in WAYS]
    tuned(notes, sides, 1 if quick else None)
    allocations(notes, 3 if quick else 100)
    small_cases(notes, 1 if quick else 10)
    rounds(notes, CLIENTS[:1] if quick else CLIENTS, 2 if quick else 20)
    clients, width, batch, count = (2, 64, 8, 1) if quick else (6, 1024, 64, 12)
    live(notes, clients, width, batch, count)


SYSTEM = System(
    "EPSL, parallel split learning with aggregated gradients",
    "IEEE TMC 2024, arXiv 2303.15991",
    "SplitServer(upper, optimizer, phi=0.5)",
    experiment,
    study,
    headline=Headline(
        "rounds shorter than parallel, federated and sequential split learning, nearly the same accuracy",
        "MNIST, half of the rows: {}; live behind a short port: {} as quick",
        (
            "mnist, iid: phi 0.5 within 1 of phi 0",
            "live, the server's port is short: phi 1 is 1.5× as quick as phi 0",
        ),
        "Clients that cannot hold the model, and a server whose port is short.",
    ),
)
