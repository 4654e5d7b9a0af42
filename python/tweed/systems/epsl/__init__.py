"""Efficient parallel split learning, EPSL (Lin, Zhu, Deng, Chen, Gao, Huang, Fang, IEEE TMC 2024,
arXiv 2303.15991): clients have the lower layers, a server the upper ones, and the gradients of a share phi of
the rows are averaged over clients, propagated once and broadcast once.

Parts: `workloads.split`; its allocation of radio subchannels, power and cut in `exchange.allocation`.

The paper's claim: much shorter rounds than parallel, federated and sequential split learning, at comparable
accuracy. Here rounds are simulated by the paper's model of the radio; live ones cross a testbed whose
server's port is what is short, with UDP multicast.

contenders      what is compared
measured        what is learned, and rounds by the model of the radio
measured_live   rounds over links that are short at the server, and at clients
report          goals and tables
"""

from __future__ import annotations

from itertools import product

from tweed.report.notes import Notes
from tweed.systems import Headline, System
from tweed.systems.epsl.contenders import BATCH, CLIENTS, DATA, PARTITIONS, PHIS, STEPS
from tweed.systems.epsl.measured import Training, drops, rounds, rows, tiny, trained_rounds
from tweed.systems.epsl.measured_live import live
from tweed.systems.epsl.report import study
from tweed.systems.harness.learning_rates import Grid
from tweed.systems.harness.tuning import tuned

#: Learning rates begin here.
GRID = Grid(0.1, 3.0, tries=8)
#: What is timed live, by network.
HOWS = {
    "server": ("0", "0.5", "1", "unicast"),
    "both ways": ("0", "0.5", "1"),
    "uplinks": ("0", "1", "codecs"),
}


def experiment(notes: Notes, quick: bool) -> None:
    """Cost: twenty minutes of two cores, the last two of them live; quick: half a minute."""
    for clients in (2, 5):
        for phi in (0.0, 0.3, 0.5, 1.0):
            rows(notes, clients, 10, phi)
    tiny(notes, 1 if quick else 10)
    drops(notes, 2 if quick else 100)
    rounds(notes, CLIENTS[:1] if quick else (2, *CLIENTS), 1 if quick else 10)
    trained_rounds(notes, CLIENTS[:1] if quick else CLIENTS, BATCH, 1 if quick else 10)
    if quick:
        grid = Grid(0.1, tries=1)
        tuned(notes, [Training("digits", "iid", phi, 3, 8, 25).side(grid, range(1)) for phi in PHIS], 1)
        return
    asked = [(data, part, phi, CLIENTS[0]) for data, part, phi in product(DATA, PARTITIONS, PHIS)]
    tuned(notes, [Training(*one, BATCH, STEPS).side(GRID, range(5)) for one in asked])
    more = [(DATA[0], PARTITIONS[0], phi, many) for many, phi in product(CLIENTS[1:], PHIS)]
    tuned(notes, [Training(*one, BATCH, STEPS).side(GRID, range(2)) for one in more])
    for place, hows in HOWS.items():
        live(notes, place, hows, clients=6, batch=64, steps=30)


SYSTEM = System(
    "Split learning whose gradients are averaged over clients",
    "IEEE TMC 2024, arXiv 2303.15991",
    "SplitServer(upper, optimizer, loss, phi=0.5)",
    experiment,
    study,
    headline=Headline(
        "far shorter rounds than split learning before, at comparable accuracy",
        "simulated, 20 clients: {} as quick to an accuracy; a half of the rows averaged: {}",
        (
            "20 clients, simulated: 1.5× as quick to an accuracy as phi = 0",
            "mnist, iid: phi = 0.5 within 1 point of phi = 0",
        ),
        "Many weak clients, each with part of a model, and a server that is short of power or port.",
    ),
)
