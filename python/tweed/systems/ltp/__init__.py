"""LTP, a loss-tolerant transport (arXiv 2305.04279, 2023): a server does not wait for the last packet.

Parts: `transport.Ltp` (out-of-order transmission, early close, bubble filling), `collective.Server`, and
gradients at every step: `ltp(server=0)`. Ours on top: what was lost comes with the next gradient; a lossless
mode; and contributions may cross directly, without a server.

The paper's claim: with 8 workers and a server, up to 30 times the training throughput of TCP's congestion
control on lossy networks, at the same final accuracy. The experiment runs this strategy over LTP and over
the kernel's TCP: the same gradients, the same server, the same links. DCTCP is left out: this kernel has none
and no switch here marks packets.

contenders           sides, places and variants
exchange_benchmark   an exchange over a network beside others, with recorded gradients
training_runs        whole runs of `tweed train`
report               goals, tables and plots
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from tweed.report.notes import Notes, find
from tweed.systems import Headline, System
from tweed.systems.harness.benchmark import Config
from tweed.systems.ltp import training_runs
from tweed.systems.ltp.contenders import (
    GRID,
    INCAST,
    OURS,
    SERVERS,
    SEVERAL,
    SHALLOW,
    SIDES,
    VARIANTS,
    WORKERS,
    Place,
    over,
)
from tweed.systems.ltp.exchange_benchmark import Side, Workload, exchange, record
from tweed.systems.ltp.report import study
from tweed.systems.ltp.training_runs import TrainingRun
from tweed.testbed import Network

TASK, BATCH = "fashion-mnist", 32
SEEDS = range(5)


def experiment(notes: Notes, quick: bool) -> None:
    """Incast, whole trainings, then exchanges over all networks; each can be gone on with.

    Cost: half an hour on two cores, and some two hours for the networks, as TCP waits for its timers. Quick:
    one minute.
    """
    workload = _workload(notes)
    if quick:
        config = Config(1, 0.5, 0, 4, settle=True)
        _exchange(notes, workload, Place("1 %", "1"), [SIDES[OURS], SIDES["cubic"]], config)
    else:
        _exchange(
            notes, workload, None, [*SIDES.values(), *SEVERAL.values()], Config(5, 25.0, 0, 100, settle=True)
        )
    for run, seed in _runs(quick):
        training_runs.train(notes, run, seed)
    for place in [] if quick else GRID:
        _exchange(notes, workload, place, [*SIDES.values()], Config(3, 6.0, 0, 60, settle=True))


def _workload(notes: Notes) -> Workload:
    """The model's gradients and computing time, recorded once per run."""
    line = find(notes.lines, kind="workload")
    if line is not None:
        return Workload(tuple(map(tuple, line["shapes"])), line["compute_s"], line["batch"])
    workload = record(TASK, BATCH)
    notes.add({"kind": "workload", "task": TASK} | asdict(workload))
    return workload


def _exchange(
    notes: Notes, workload: Workload, place: Place | None, sides: Sequence[Side], config: Config
) -> None:
    """Runs all sides over a network of the grid, or incast, unless the notes have it already."""
    name = SHALLOW if place is None else place.name
    if notes.has(kind="exchange", place=name):
        return
    network = Network.parse(INCAST) if place is None else over(place)
    notes.log(f"{name}: {network.words}")
    server_bits = 1e6 * float(SERVERS[0] if place is None else place.server)
    facts: dict[str, object] = {"kind": "exchange", "place": name}
    facts |= {"network": str(network), "words": network.words}
    facts |= {
        "bound_s": WORKERS * workload.gradient_bytes * 8 / server_bits,
        "samples": WORKERS * workload.batch,
    }
    for found in exchange(network, WORKERS, sides, workload, config):
        notes.add(facts | asdict(found))


#: Steps per task: enough for the reliable run to have levelled off.
STEPS = {"digits": 300, "fashion-mnist": 250}
LOSSY = "loss=5%"


def _runs(quick: bool) -> Iterator[tuple[TrainingRun, int]]:
    tasks = {"digits": 16} if quick else STEPS
    variants = ("reliable", "ltp") if quick else tuple(VARIANTS)
    for task, steps in tasks.items():
        for variant in variants:
            run = TrainingRun(task, variant, f"ltp(server=0{VARIANTS[variant]})", LOSSY, steps)
            yield from ((run, seed) for seed in SEEDS[: 1 if quick else None])


SYSTEM = System(
    "LTP, a loss-tolerant transport",
    "arXiv 2305.04279, 2023",
    "ltp(server=0)",
    experiment,
    study,
    headline=Headline(
        "up to 30× the throughput of TCP",
        "{} of cubic's, {} of reno's at 3 % loss and 40 ms; bbr is close",
        ("3 %, 40 ms: throughput at least 20× cubic's", "3 %, 40 ms: throughput at least 20× reno's"),
        "Links that lose packets where you cannot set bbr, and incast.",
    ),
)
