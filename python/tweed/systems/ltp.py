"""LTP, a loss-tolerant transport (arXiv 2305.04279, 2023): a server does not wait for the last packet.

Parts: `transport.Ltp` (out-of-order transmission, early close, bubble filling), `collective.Server`, and
gradients at every step: `ltp(server=0)`. Ours on top: what was lost comes with the next gradient; a lossless
mode; and contributions may cross directly, without a server.

The paper's claim: with 8 workers and a server, up to 30 times the training throughput of TCP's congestion
control on lossy networks, at the same final accuracy. The experiment runs this strategy over LTP and over
the kernel's TCP: the same gradients, the same server, the same links. DCTCP is left out: this kernel has none
and no switch here marks packets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from tweed.collective import Server
from tweed.experiments import training_runs
from tweed.experiments.benchmark import Config
from tweed.experiments.exchange_benchmark import Side, Workload, exchange, record
from tweed.experiments.notes import Line, Notes, find
from tweed.experiments.training_runs import TrainingRun
from tweed.recipes import ltp
from tweed.report.study import Study
from tweed.strategy import Strategy
from tweed.systems import System
from tweed.systems.reports import ltp as report
from tweed.systems.reports.ltp import GRID, OURS, SHALLOW, SIDES, WORKERS
from tweed.testbed import Network

TASK, BATCH = "fashion-mnist", 32
#: Bits per second of the server's link; those of the workers together are more, so it is where queues build.
SERVER_BITS = 500e6
LINKS = "rate=100mbit,0.rate=500mbit"
#: Eight links as fast as the server's, and a queue of 64 KB before it: a burst of all does not fit in.
INCAST = "rate=500mbit,queue=64kb"
SEEDS = (0, 1, 2)


def over(loss: str, round_trip_ms: str) -> Network:
    """A network of the grid. A round trip of 0.1 ms is about what the machine takes by itself."""
    lost = "" if loss == "0" else f",loss={loss}%"
    delayed = "" if round_trip_ms == "0.1" else f",rtt={round_trip_ms}ms"
    return Network.parse(LINKS + lost + delayed)


def side(label: str) -> Side:
    """What a label in `SIDES` stands for."""
    quiet = {"TWEED_METRICS": "0"}  # no metrics for `tweed top` among those that are measured
    if label == OURS:
        return Side(label, ltp(server=0), quiet)
    congestion, _, streams = label.partition(" ×")
    over_tcp = quiet | {"TWEED_CONGESTION": congestion, "TWEED_STREAMS": streams or "1"}
    return Side(label, Strategy(collective=Server(0)), over_tcp)


def experiment(notes: Notes, quick: bool) -> None:
    """Exchanges over all networks, then whole trainings. Cost: some 20 minutes on two cores; quick: one."""
    workload = _workload(notes)
    if quick:
        config = Config(1, 0.5, 0, 4, settle=True)
        _exchange(notes, workload, ("1 %, 1 ms", over("1", "1")), (OURS, "cubic"), config)
    else:
        for place in GRID:
            network = over(place.loss, place.round_trip_ms)
            _exchange(notes, workload, (place.name, network), SIDES, Config(3, 2.0, 0, 60, settle=True))
        queues = (SHALLOW, Network.parse(INCAST))
        _exchange(notes, workload, queues, SIDES, Config(5, 25.0, 0, 100, settle=True))
    for run, seed in _runs(quick):
        training_runs.train(notes, run, seed)


def _workload(notes: Notes) -> Workload:
    """The model's gradients and computing time, recorded once per run."""
    line = find(notes.lines, kind="workload")
    if line is not None:
        return Workload(tuple(map(tuple, line["shapes"])), line["compute_s"], line["batch"])
    workload = record(TASK, BATCH)
    notes.add({"kind": "workload", "task": TASK} | asdict(workload))
    return workload


def _exchange(
    notes: Notes, workload: Workload, place: tuple[str, Network], labels: Sequence[str], config: Config
) -> None:
    """Runs all sides over a network, unless the notes have it already."""
    name, network = place
    if notes.has(kind="exchange", place=name):
        return
    notes.log(f"{name}: {network.words}")
    bound_s = WORKERS * workload.gradient_bytes * 8 / SERVER_BITS
    facts: dict[str, object] = {"kind": "exchange", "place": name}
    facts |= {"network": str(network), "words": network.words}
    facts |= {"bound_s": bound_s, "samples": WORKERS * workload.batch}
    for found in exchange(network, WORKERS, [side(label) for label in labels], workload, config):
        notes.add(facts | asdict(found))


#: By name in the report: settings of `ltp`; the paper's fraction, so that much is lost.
VARIANTS = {
    "reliable": ", lossless=True",
    "ltp": "",
    "lost is returned": ", fraction=0.8",
    "lost is dropped": ", fraction=0.8, return_lost=False",
    "dropped, ÷ delivered": ", fraction=0.8, return_lost=False, divide_by='delivered'",
    "returned, ÷ delivered": ", fraction=0.8, divide_by='delivered'",
}
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


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    lead = f"{WORKERS} workers push gradients to a server and get their average back: LTP beside kernel TCP."
    return Study("LTP: gradients do not wait for the last packet", lead, report.sections(lines))


SYSTEM = System(
    "LTP, a loss-tolerant transport", "arXiv 2305.04279, 2023", "ltp(server=0)", experiment, study
)
