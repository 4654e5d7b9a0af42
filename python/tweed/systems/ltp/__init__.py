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
from tweed.recipes import ltp
from tweed.report.notes import Line, Notes, find
from tweed.report.study import Study
from tweed.strategy import Strategy
from tweed.systems import Headline, System
from tweed.systems.harness.benchmark import Config
from tweed.systems.ltp import report, training_runs
from tweed.systems.ltp.exchange_benchmark import Side, Workload, exchange, record
from tweed.systems.ltp.report import GRID, LOSSES, LOSSLESS, OURS, SERVERS, SHALLOW, SIDES, WORKERS, Place
from tweed.systems.ltp.training_runs import TrainingRun
from tweed.testbed import Network

TASK, BATCH = "fashion-mnist", 32
#: Eight links as fast as the server's, and a queue of 64 KB before it: a burst of all does not fit in.
INCAST = "rate=500mbit,queue=64kb"
#: Beside that, four connections per pair of ranks, as tweed has by itself.
SEVERAL = ("cubic ×4", "bbr ×4")
#: Seconds: a side of which a step takes longer is noted as failed there.
LIMIT_S = 60
SEEDS = range(5)


def over(place: Place) -> Network:
    """A network of the grid. A round trip of 0.1 ms is about what the machine takes by itself."""
    delayed = "" if place.round_trip_ms == "0.1" else f",rtt={place.round_trip_ms}ms"
    server = "" if place.server == "100" else f",0.rate={place.server}mbit"
    return Network.parse(f"rate=100mbit{server}{LOSSES[place.loss][0]}{delayed}")


def side(label: str) -> Side:
    """What a label in `SIDES` stands for."""
    # No metrics for `tweed top` among those that are measured.
    settings = {"TWEED_METRICS": "0", "TWEED_DEADLINE": str(LIMIT_S)}
    if label in (OURS, LOSSLESS):
        return Side(label, ltp(server=0, lossless=label == LOSSLESS), settings)
    congestion, _, streams = label.partition(" ×")
    over_tcp = settings | {"TWEED_CONGESTION": congestion, "TWEED_STREAMS": streams or "1"}
    return Side(label, Strategy(collective=Server(0)), over_tcp)


def experiment(notes: Notes, quick: bool) -> None:
    """Incast, whole trainings, then exchanges over all networks; each can be gone on with.

    Cost: half an hour on two cores, and some two hours for the networks, as TCP waits for its timers. Quick:
    one minute.
    """
    workload = _workload(notes)
    if quick:
        config = Config(1, 0.5, 0, 4, settle=True)
        _exchange(notes, workload, Place("1 %", "1"), (OURS, "cubic"), config)
    else:
        _exchange(notes, workload, None, (*SIDES, *SEVERAL), Config(5, 25.0, 0, 100, settle=True))
    for run, seed in _runs(quick):
        training_runs.train(notes, run, seed)
    for place in [] if quick else GRID:
        _exchange(notes, workload, place, SIDES, Config(3, 6.0, 0, 60, settle=True))


def _workload(notes: Notes) -> Workload:
    """The model's gradients and computing time, recorded once per run."""
    line = find(notes.lines, kind="workload")
    if line is not None:
        return Workload(tuple(map(tuple, line["shapes"])), line["compute_s"], line["batch"])
    workload = record(TASK, BATCH)
    notes.add({"kind": "workload", "task": TASK} | asdict(workload))
    return workload


def _exchange(
    notes: Notes, workload: Workload, place: Place | None, labels: Sequence[str], config: Config
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
